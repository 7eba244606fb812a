#include "ac2/internal/libtorch/cpu_deleters.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <array>
#include <atomic>

namespace ac2::internal {

namespace {

// Relaxed: whoever has memory of a deleter has it from a thread that added the deleter before.
constinit std::array<std::atomic<c10::DeleterFnPtr>, 4> added{};

}  // namespace

void add_cpu_deleter(c10::DeleterFnPtr deleter) {
  for (std::atomic<c10::DeleterFnPtr>& place : added) {
    c10::DeleterFnPtr there = nullptr;
    if (place.compare_exchange_strong(there, deleter, std::memory_order_relaxed) || there == deleter) {
      return;
    }
  }
  TORCH_INTERNAL_ASSERT(false, "ac2: more deleters of the CPU than there are places for");
}

bool is_cpu_deleter(c10::DeleterFnPtr deleter) {
  if (deleter == nullptr) {
    return false;
  }
  if (deleter == c10::GetDefaultCPUAllocator()->raw_deleter()) {
    return true;
  }
  for (const std::atomic<c10::DeleterFnPtr>& place : added) {
    if (place.load(std::memory_order_relaxed) == deleter) {
      return true;
    }
  }
  return false;
}

}  // namespace ac2::internal
