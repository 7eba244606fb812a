#include "ac2/internal/region/close_scope.h"

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace ac2::internal {

void close_scope(const std::shared_ptr<ScopeState>& scope) {
  const std::string complaint = ThreadRegions::here().close(scope);
  if (complaint.empty()) {
    return;
  }
  if (std::uncaught_exceptions() > 0) {
    TORCH_WARN(complaint);
    return;
  }
  TORCH_CHECK(false, complaint);
}

}  // namespace ac2::internal
