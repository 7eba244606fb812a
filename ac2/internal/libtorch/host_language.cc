#include "ac2/internal/libtorch/host_language.h"

#include <atomic>

namespace ac2::internal {

namespace {

std::atomic<const HostLanguage*> installed_host{nullptr};

}  // namespace

void install_host_language(const HostLanguage* host) {
  // Pairs with the acquire of host_language(), for what its functions find set up.
  installed_host.store(host, std::memory_order_release);
}

const HostLanguage* host_language() {
  return installed_host.load(std::memory_order_acquire);
}

}  // namespace ac2::internal
