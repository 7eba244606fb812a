// Whether this thread holds a lock of ac2's, and locks that are taken by a thread that may hold any other.
//
// Memory can run out wherever something is allocated: in a kernel, in the accelerator's allocator, with locks that ac2
// knows nothing of. Who then wants to drop values must neither wait for a lock that this thread holds itself, nor for
// ever for one that another thread holds while it waits for what this thread has.
//
//   HoldsLock::set(); … HoldsLock::unset();      // by the guards of our locks, as long as they hold them
//   if (HoldsLock::here()) return nothing;
//   if (!lock_in_time(mutex)) return nothing;
//
// Threads: any.
#pragma once

#include <thread>

namespace ac2::internal {

class HoldsLock {
 public:
  static void set() { ++held_; }
  static void unset() { --held_; }
  static bool here() { return held_ > 0; }

 private:
  // In the thread's own block, which costs an instruction to reach: it is touched for every lock.
  static inline thread_local int held_ __attribute__((tls_model("initial-exec"))) = 0;
};

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
