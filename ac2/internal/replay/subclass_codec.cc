#include "ac2/internal/replay/subclass_codec.h"

#include <atomic>

namespace ac2::internal {

namespace {

std::atomic<const SubclassCodec*> installed{nullptr};

}  // namespace

void set_subclass_codec(const SubclassCodec* codec) {
  installed.store(codec, std::memory_order_release);
}

const SubclassCodec* subclass_codec() {
  return installed.load(std::memory_order_acquire);
}

}  // namespace ac2::internal
