#include "ac2/internal/budget/budgets_at_fork.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "ac2/internal/locks/fork_locks.h"

namespace ac2::internal {

class BudgetsAtFork {
 public:
  static BudgetsAtFork& get() {
    static auto* all = new BudgetsAtFork;  // leaked: budgets may outlive static destruction
    return *all;
  }

  void add(BudgetAtFork* budget) {
    static const bool takes_part = take_part();
    static_cast<void>(takes_part);
    const MutexLock lock(mutex_);
    budgets_.insert(budget);
  }
  void remove(BudgetAtFork* budget) {
    const MutexLock lock(mutex_);
    budgets_.erase(budget);
  }

 private:
  // Not by the constructor: a fork in another thread would wait in get() for this one, which waits for ForkLocks.
  static bool take_part() {
    ForkLocks::add(ForkLocks::Order::kFirst, {.lock = &lock_before_tapes, .unlock = &unlock_before_tapes});
    ForkLocks::add(ForkLocks::Order::kBudgets, {.lock = &lock_after_tapes, .unlock = &unlock_after_tapes});
    return true;
  }

  // The mutex is held from the first of these functions to the last, so that no budget comes or goes between them.
  static void lock_before_tapes() ABSL_EXCLUSIVE_LOCK_FUNCTION(get().mutex_) {
    get().mutex_.lock();
    for (BudgetAtFork* budget : get().budgets_) {
      budget->before_tapes_.lock();
    }
  }
  static void lock_after_tapes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(get().mutex_) {
    for (BudgetAtFork* budget : get().budgets_) {
      budget->after_tapes_.lock();
      budget->turn_.lock();
    }
  }
  static void unlock_after_tapes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(get().mutex_) {
    for (BudgetAtFork* budget : get().budgets_) {
      budget->turn_.unlock();
      budget->after_tapes_.unlock();
    }
  }
  static void unlock_before_tapes() ABSL_UNLOCK_FUNCTION(get().mutex_) {
    for (BudgetAtFork* budget : get().budgets_) {
      budget->before_tapes_.unlock();
    }
    get().mutex_.unlock();
  }

  Mutex mutex_;
  absl::flat_hash_set<BudgetAtFork*> budgets_ ABSL_GUARDED_BY(mutex_);
};

// The mutex is held from the one to the other, unless it could not be had: no annotation says that.
void BudgetAtFork::ForkedMutex::lock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  is_ours = lock_for_fork(mutex);
}

void BudgetAtFork::ForkedMutex::unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (std::exchange(is_ours, false)) {
    mutex.unlock();
  }
}

BudgetAtFork::BudgetAtFork(Mutex& before_tapes, Mutex& after_tapes, Mutex& turn)
    : before_tapes_{before_tapes}, after_tapes_{after_tapes}, turn_{turn} {
  BudgetsAtFork::get().add(this);
}

BudgetAtFork::~BudgetAtFork() {
  BudgetsAtFork::get().remove(this);
}

}  // namespace ac2::internal
