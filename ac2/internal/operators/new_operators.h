// The operators that have been registered since one last looked: at the first look all that there are.
//
//   NewOperators& operators = *new NewOperators;               // never destroyed: the dispatcher refers to it
//   operators.for_each([](const c10::OperatorHandle& op) { … });
//
// The dispatcher tells of a new operator while it holds its lock, when nothing can be registered. So the operators are
// gathered, and somebody looks later.
//
// Threads: any.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <optional>
#include <vector>

#include "ac2/internal/locks/mutex.h"

namespace ac2::internal {

class NewOperators {
 public:
  NewOperators();
  NewOperators(const NewOperators&) = delete;
  NewOperators& operator=(const NewOperators&) = delete;

  // Calls `fn` once for each, in the order of their registration, without those that are gone again. One thread after
  // the other; when it returns, `fn` has run for all that were registered before the call. `fn` may register.
  template <class Fn>
  void for_each(Fn&& fn) ABSL_LOCKS_EXCLUDED(looking_) {
    if (!any_.load(std::memory_order_acquire)) {
      return;
    }
    const MutexLock lock(looking_);
    for (auto taken = take(); !taken.empty(); taken = take()) {
      for (const c10::OperatorHandle& op : taken) {
        fn(op);
      }
    }
  }

 private:
  class Listener;

  std::vector<c10::OperatorHandle> take() ABSL_LOCKS_EXCLUDED(mutex_);

  Mutex looking_ ABSL_ACQUIRED_BEFORE(mutex_);
  // False only once all operators that were taken have been followed by a take() that found none.
  std::atomic<bool> any_{false};
  Mutex mutex_;  // taken with the dispatcher's lock, so nothing is called under it
  std::vector<c10::OperatorHandle> operators_ ABSL_GUARDED_BY(mutex_);
  std::optional<c10::RegistrationHandleRAII> listening_;
};

}  // namespace ac2::internal
