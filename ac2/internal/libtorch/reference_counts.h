// Reference counts that something is read by.
//
//   if (is_referred_to_by(storage, 1)) {   // nobody else has it any more
//     … storage.nbytes() …                 // the writes of the others before they let go are seen
//   }
//
// LibTorch reads its counts with relaxed order (c10::intrusive_ptr::use_count()). Such a
// count alone does not show what other threads wrote to the object before they let go of it: a processor that reorders
// loads (aarch64) may have read the object's fields before the count. Code that only drops the last reference, or only
// counts, does not need this. Code that compares a count with the references that it knows reads the count while a lock
// keeps those references from going (record/exposing.cc).
//
// Threads: any. Others may come to have the object while this looks, by a weak reference; callers know that none does.
#pragma once

#include <atomic>
#include <cstddef>

namespace ac2::internal {

// Whether exactly `count` strong references exist. `handle` has use_count(): at::Tensor, c10::Storage, and c10's weak
// references.
template <class Handle>
bool is_referred_to_by(const Handle& handle, size_t count) {
  if (static_cast<size_t>(handle.use_count()) != count) {
    return false;
  }
  // Pairs with the release of c10's decrement, by which the others let go of it.
  std::atomic_thread_fence(std::memory_order_acquire);
  return true;
}

}  // namespace ac2::internal
