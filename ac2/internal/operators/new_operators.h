// The operators that have been registered since one last looked: at the first look all that there are.
//
//   NewOperators& operators = *new NewOperators;               // never destroyed: the dispatcher refers to it
//   if (operators.any()) {
//     for (const c10::OperatorHandle& op : operators.take()) …
//   }
//
// The dispatcher tells of a new operator while it holds its lock, when nothing can be registered. So the operators are
// gathered, and somebody looks later.
//
// Threads: any.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

namespace ac2::internal {

class NewOperators {
 public:
  NewOperators();
  NewOperators(const NewOperators&) = delete;
  NewOperators& operator=(const NewOperators&) = delete;

  // False only once all operators that were taken have been followed by a take() that found none.
  bool any() const { return any_.load(std::memory_order_acquire); }
  // In the order of their registration, without those that are gone again.
  std::vector<c10::OperatorHandle> take();

 private:
  class Listener;

  std::atomic<bool> any_{false};
  std::mutex mutex_;  // taken with the dispatcher's lock, so nothing is called under it
  std::vector<c10::OperatorHandle> operators_;
  std::optional<c10::RegistrationHandleRAII> listening_;
};

}  // namespace ac2::internal
