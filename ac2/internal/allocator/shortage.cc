#include "ac2/internal/allocator/shortage.h"

#include <c10/util/ScopeExit.h>

#include <atomic>

namespace ac2::internal {

namespace {

std::atomic<ShortageHandler> installed_handler{nullptr};
std::atomic<ShortageText> installed_text{nullptr};
thread_local bool is_relieving = false;

}  // namespace

void set_shortage_handler(ShortageHandler handler, ShortageText text) {
  // Each pairs with the acquire of its reader, for what its function finds set up. The text goes first: a handler that
  // has failed is followed by it.
  installed_text.store(text, std::memory_order_release);
  installed_handler.store(handler, std::memory_order_release);
}

int64_t relieve_shortage(c10::Device device, int64_t bytes) noexcept {
  return relieve_by(installed_handler.load(std::memory_order_acquire), device, bytes);
}

int64_t relieve_by(ShortageHandler handler, c10::Device device, int64_t bytes) noexcept {
  if (handler == nullptr || is_relieving) {
    return 0;
  }
  is_relieving = true;
  const auto done = c10::make_scope_exit([] { is_relieving = false; });
  try {
    return handler(device, bytes);
  } catch (...) {
    // There may be too little memory for the lists of what is dropped. The caller's error says what there is to say.
    return 0;
  }
}

std::string shortage_text(c10::Device device) noexcept {
  const ShortageText text = installed_text.load(std::memory_order_acquire);
  if (text == nullptr || is_relieving) {
    return {};
  }
  try {
    return text(device);
  } catch (...) {
    return {};
  }
}

}  // namespace ac2::internal
