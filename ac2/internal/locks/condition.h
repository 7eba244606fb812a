// The standard library's condition_variable, for a Mutex (mutex.h).
//
//   const MutexLock lock(mutex_);
//   while (queue_.empty()) {
//     changed_.wait(mutex_);
//   }
//
// Rejected: a wait that takes what it waits for as a function. The analysis does not see that the function is called
// with the mutex held.
//
// Threads: any.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "ac2/internal/locks/mutex.h"

namespace ac2::internal {

class Condition {
 public:
  // Gives the mutex back while it waits. May return although nobody has notified.
  void wait(Mutex& mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // False if it is `latest` or later.
  bool wait_until(Mutex& mutex, std::chrono::steady_clock::time_point latest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const bool in_time = condition_.wait_until(lock, latest) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace ac2::internal
