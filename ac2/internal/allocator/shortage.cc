#include "ac2/internal/allocator/shortage.h"

#include <c10/util/ScopeExit.h>

#include <atomic>
#include <utility>

namespace ac2::internal {

namespace {

std::atomic<const ShortageHandlers*> installed{nullptr};
thread_local bool is_in_handler = false;

// Returns the result of the handler, or nothing if there is none, if this thread is in one already, or if it throws:
// there may be too little memory for the lists of what is dropped. The caller's error says what there is to say.
template <class Handler, class... Args>
auto ask(Handler handler, Args&&... args) noexcept -> decltype(handler(std::forward<Args>(args)...)) {
  if (handler == nullptr || is_in_handler) {
    return {};
  }
  is_in_handler = true;
  const auto done = c10::make_scope_exit([] { is_in_handler = false; });
  try {
    return handler(std::forward<Args>(args)...);
  } catch (...) {
    return {};
  }
}

const ShortageHandlers& handlers() {
  static constexpr ShortageHandlers kNone;
  // Pairs with the release of set_shortage_handlers(), for what the functions find set up.
  const ShortageHandlers* there = installed.load(std::memory_order_acquire);
  return there != nullptr ? *there : kNone;
}

}  // namespace

void set_shortage_handlers(const ShortageHandlers* handlers) {
  installed.store(handlers, std::memory_order_release);
}

int64_t relieve_shortage(c10::Device device, int64_t bytes) noexcept {
  return ask(handlers().free, device, bytes);
}

int64_t relieve_by(ShortageHandler handler, c10::Device device, int64_t bytes) noexcept {
  return ask(handler, device, bytes);
}

HeldValues held_values() noexcept {
  return ask(handlers().held);
}

std::string shortage_text(c10::Device device) noexcept {
  return ask(handlers().text, device);
}

}  // namespace ac2::internal
