#include "ac2/internal/replay/subclass_codec.h"

#include <atomic>

namespace ac2::internal {

namespace {

std::atomic<const SubclassCodec*> installed_codec{nullptr};

}  // namespace

void set_subclass_codec(const SubclassCodec* codec) {
  // Pairs with the acquire of subclass_codec(). A thread that follows the pointer sees the codec.
  installed_codec.store(codec, std::memory_order_release);
}

const SubclassCodec* subclass_codec() {
  return installed_codec.load(std::memory_order_acquire);
}

}  // namespace ac2::internal
