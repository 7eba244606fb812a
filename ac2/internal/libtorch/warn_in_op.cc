#include "ac2/internal/libtorch/warn_in_op.h"

#include "ac2/internal/libtorch/host_language.h"

namespace ac2::internal {

void warn_in_op(const std::string& text) {
  const HostLanguage* host = host_language();
  if (host == nullptr || !host->take_warning(text)) {
    TORCH_WARN(text);
  }
}

}  // namespace ac2::internal
