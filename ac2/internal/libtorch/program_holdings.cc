#include "ac2/internal/libtorch/program_holdings.h"

#include "ac2/internal/libtorch/host_language.h"

namespace ac2::internal {

std::vector<std::string> program_holdings() {
  const HostLanguage* host = host_language();
  return host != nullptr ? host->program_holdings() : std::vector<std::string>();
}

}  // namespace ac2::internal
