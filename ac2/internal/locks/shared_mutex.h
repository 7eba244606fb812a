// The standard library's shared_mutex, known to clang's thread safety analysis (mutex.h).
//
//   std::unique_lock alone(mutex);
//   std::shared_lock beside_others(mutex);
//
// Threads: any.
#pragma once

#include <shared_mutex>

#include "absl/base/thread_annotations.h"

namespace ac2::internal {

class ABSL_LOCKABLE SharedMutex {
 public:
  SharedMutex() = default;
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  bool try_lock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mutex_.try_lock(); }
  void lock_shared() ABSL_SHARED_LOCK_FUNCTION() { mutex_.lock_shared(); }
  void unlock_shared() ABSL_UNLOCK_FUNCTION() { mutex_.unlock_shared(); }
  bool try_lock_shared() ABSL_SHARED_TRYLOCK_FUNCTION(true) { return mutex_.try_lock_shared(); }
  std::shared_mutex::native_handle_type native_handle() { return mutex_.native_handle(); }

 private:
  std::shared_mutex mutex_;
};

}  // namespace ac2::internal
