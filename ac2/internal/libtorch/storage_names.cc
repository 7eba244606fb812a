#include "ac2/internal/libtorch/storage_names.h"

#include <atomic>

namespace ac2::internal {

namespace {

std::atomic<StorageNamer> installed_namer{nullptr};

}  // namespace

void set_storage_namer(StorageNamer namer) {
  // Pairs with the acquire of storage_names(), for what the namer finds set up.
  installed_namer.store(namer, std::memory_order_release);
}

StorageNames storage_names() {
  const StorageNamer namer = installed_namer.load(std::memory_order_acquire);
  return namer != nullptr ? namer() : StorageNames();
}

}  // namespace ac2::internal
