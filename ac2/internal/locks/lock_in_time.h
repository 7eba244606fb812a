// Locks that are taken by a thread that may hold any other.
//
// Memory can run out wherever something is allocated: in a kernel, in the accelerator's allocator, with locks that ac2
// knows nothing of. A thread that then wants to drop values must not wait for a lock that it holds itself. The thread
// must not wait for ever for a lock that another thread holds while the other waits for what this thread has.
//
//   owner.store(this_thread(), std::memory_order_relaxed);       // by the guard of a lock, after it was taken
//   owner.store(nullptr, std::memory_order_relaxed);             // and before it is given back
//   …
//   if (owner.load(std::memory_order_relaxed) == this_thread() || !lock_in_time(mutex)) return nothing;
//
// Threads: any.
#pragma once

#include <thread>

#include "absl/base/thread_annotations.h"

namespace ac2::internal {

// Tells threads that live at the same time apart. Every lock of a tape calls this_thread(), so the function is an
// instruction.
inline const void* this_thread() {
#if defined(__x86_64__) || defined(__aarch64__)
  return __builtin_thread_pointer();
#else
  static thread_local const char mark = 0;
  return &mark;
#endif
}

// False if the mutex did not become free while this thread tried and let others run, some ten milliseconds at least.
template <class M>
bool lock_in_time(M& mutex) ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true, mutex) {
  constexpr int kTries = 20'000;
  for (int i = 0; i < kTries; ++i) {
    if (mutex.try_lock()) {
      return true;
    }
    std::this_thread::yield();
  }
  return false;
}

}  // namespace ac2::internal
