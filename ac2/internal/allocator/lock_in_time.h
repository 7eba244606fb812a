// Locks that are taken by a thread that may hold any other.
//
// Memory can run out wherever something is allocated: in a kernel, in the accelerator's allocator, with locks that ac2
// knows nothing of. Who then wants to drop values must neither wait for a lock that this thread holds itself, nor for
// ever for one that another thread holds while it waits for what this thread has.
//
//   owner.store(this_thread(), std::memory_order_relaxed);       // by the guard of a lock, after it was taken
//   owner.store(nullptr, std::memory_order_relaxed);             // and before it is given back
//   …
//   if (owner.load(std::memory_order_relaxed) == this_thread() || !lock_in_time(mutex)) return nothing;
//
// Threads: any.
#pragma once

#include <thread>

namespace ac2::internal {

// Tells threads that live at the same time apart. It is asked for every lock of a tape, so it is an instruction.
inline const void* this_thread() {
#if defined(__x86_64__) || defined(__aarch64__)
  return __builtin_thread_pointer();
#else
  static thread_local const char mark = 0;
  return &mark;
#endif
}

// False if the mutex did not become free while this thread tried and let others run, some ten milliseconds at least.
template <class Mutex>
bool lock_in_time(Mutex& mutex) {
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
