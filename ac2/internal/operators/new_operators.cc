#include "ac2/internal/operators/new_operators.h"

#include <memory>
#include <utility>

#include "ac2/internal/locks/fork_locks.h"

namespace ac2::internal {

// The dispatcher calls it with its lock.
class NewOperators::Listener final : public c10::OpRegistrationListener {
 public:
  explicit Listener(NewOperators& operators) : new_(operators) {}

  void onOperatorRegistered(const c10::OperatorHandle& op) override {
    const MutexLock lock(new_.mutex_);
    new_.operators_.push_back(op);
    new_.any_.store(true, std::memory_order_release);
  }
  void onOperatorDeregistered(const c10::OperatorHandle& op) override {
    const MutexLock lock(new_.mutex_);
    std::erase(new_.operators_, op);
  }

 private:
  NewOperators& new_;
};

// The listener is told of all operators that there are, and then of each new one.
NewOperators::NewOperators() {
  ForkLocks::add_last(mutex_);
  listening_.emplace(c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Listener>(*this)));
}

// A thread that reads false from any_ does not wait for whoever took the operators before. So the flag goes down only
// at a look that finds none, which comes after what was done with those. The acquire of for_each() pairs with this
// release.
std::vector<c10::OperatorHandle> NewOperators::take() {
  const MutexLock lock(mutex_);
  if (operators_.empty()) {
    any_.store(false, std::memory_order_release);
  }
  return std::exchange(operators_, {});
}

}  // namespace ac2::internal
