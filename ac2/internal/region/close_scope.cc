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
  // Also where it throws: an error ends the program where destructors must not throw, before anybody has read it.
  TORCH_WARN(complaint);
  TORCH_CHECK(std::uncaught_exceptions() > 0, complaint);
}

}  // namespace ac2::internal
