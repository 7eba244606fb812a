// Allocators say here that memory has run out, and the budgets that can free some are asked to.
//
//   set_shortage_handler({.free = &drop_values});              // by the budgets
//   while (!try_to_allocate(bytes) && relieve_shortage(device, bytes) > 0) {}
//
// The handler runs in the middle of an allocation, on the thread that allocates: in any op, with locks of the program,
// of LibTorch and of the device's allocator held. The handler runs no code of the program.
//
// Threads: any.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace ac2::internal {

// Frees memory of `device`, until `bytes` were freed or there is nothing more to free. Returns how many were.
using ShortageHandler = int64_t (*)(c10::Device device, int64_t bytes);
// Of the budgets that free values where memory runs out.
struct HeldValues {
  int64_t bytes = 0;
  int64_t backwards = 0;  // that have ended

  // In which nobody has seen how large the allocations of a step are.
  static constexpr int64_t kFirstSteps = 2;
};
struct ShortageHandlers {
  ShortageHandler free = nullptr;
  HeldValues (*held)() = nullptr;
  // A sentence for an error: how much is held, and why no more can be freed. Empty if there is nothing to say.
  std::string (*text)(c10::Device device) = nullptr;
};
// `handlers` must live to the end of the process; null: none.
void set_shortage_handlers(const ShortageHandlers* handlers);

// The bytes that the handler has freed. 0 if there is none, if it throws, or if this thread is in it already.
int64_t relieve_shortage(c10::Device device, int64_t bytes) noexcept;
// The same of another handler.
int64_t relieve_by(ShortageHandler handler, c10::Device device, int64_t bytes) noexcept;
// Nothing if there is no handler, if it throws, or if this thread is in one already.
HeldValues held_values() noexcept;
// The handler's text, or empty.
std::string shortage_text(c10::Device device) noexcept;

}  // namespace ac2::internal
