// The standard library's mutexes, known to clang's thread safety analysis, and their locks.
//
//   class Counts {
//    public:
//     void add(int64_t bytes) {
//       const MutexLock lock(mutex_);
//       bytes_ += bytes;
//       note_most();
//     }
//
//    private:
//     void note_most() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { most_ = std::max(most_, bytes_); }
//
//     Mutex mutex_;
//     int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
//     int64_t most_ ABSL_GUARDED_BY(mutex_) = 0;
//   };
//
// tools/thread_safety_check then finds code that uses bytes_ without the mutex, calls note_most() without it, takes it
// twice, or does not give it back. The annotations are abseil's. Other compilers see nothing of them, and each function
// here is one call of the standard library's.
//
// A lambda is a function of its own to the analysis: one that is called with the mutex held says so itself, behind its
// parameters.
//
// Rejected: absl::Mutex, which has these annotations. The first time that a thread has to wait for one, it allocates
// the thread's own state, and the process is aborted if there is no memory for it. The locks of ac2 are taken in
// allocators where memory runs out, and by a fork().
//
// Threads: any.
#pragma once

#include <mutex>

#include "absl/base/thread_annotations.h"

namespace ac2::internal {

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  bool try_lock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mutex_.try_lock(); }
  std::mutex::native_handle_type native_handle() { return mutex_.native_handle(); }

 private:
  friend class Condition;

  std::mutex mutex_;
};

// The thread that has it may take it again. To the analysis, one function must not do both.
class ABSL_LOCKABLE RecursiveMutex {
 public:
  RecursiveMutex() = default;
  RecursiveMutex(const RecursiveMutex&) = delete;
  RecursiveMutex& operator=(const RecursiveMutex&) = delete;

  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  bool try_lock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mutex_.try_lock(); }
  std::recursive_mutex::native_handle_type native_handle() { return mutex_.native_handle(); }

 private:
  std::recursive_mutex mutex_;
};

// Holds a mutex from here to the end of the block.
template <class M>
class [[nodiscard]] ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(M& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex_.lock(); }
  // The caller has locked it.
  MutexLock(M& mutex, std::adopt_lock_t) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) : mutex_(mutex) {}
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  M& mutex_;
};

// The same, but it may be given back before the end of the block, and taken again.
template <class M>
class [[nodiscard]] ABSL_SCOPED_LOCKABLE ReleasableMutexLock {
 public:
  explicit ReleasableMutexLock(M& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~ReleasableMutexLock() ABSL_UNLOCK_FUNCTION() {
    if (is_held_) {
      mutex_.unlock();
    }
  }
  ReleasableMutexLock(const ReleasableMutexLock&) = delete;
  ReleasableMutexLock& operator=(const ReleasableMutexLock&) = delete;

  void unlock() ABSL_UNLOCK_FUNCTION() {
    is_held_ = false;
    mutex_.unlock();
  }
  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    mutex_.lock();
    is_held_ = true;
  }

 private:
  M& mutex_;
  bool is_held_ = true;
};

}  // namespace ac2::internal
