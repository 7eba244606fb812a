// All budgets of the process, for the locks that a fork() takes (ac2/internal/locks/fork_locks.h).
//
// A budget is here from its constructor to its destructor.
//
// Threads: any.
#pragma once

#include "ac2/internal/locks/mutex.h"

namespace ac2::internal {

class BudgetAtFork {
 public:
  // `before_tapes` is taken before the locks of tapes, and `after_tapes` and `turn` after them.
  BudgetAtFork(Mutex& before_tapes, Mutex& after_tapes, Mutex& turn);
  ~BudgetAtFork();
  BudgetAtFork(const BudgetAtFork&) = delete;
  BudgetAtFork& operator=(const BudgetAtFork&) = delete;

 private:
  friend class BudgetsAtFork;

  struct ForkedMutex {
    Mutex& mutex;
    bool is_ours = false;

    void lock();
    void unlock();
  };
  ForkedMutex before_tapes_;
  ForkedMutex after_tapes_;
  ForkedMutex turn_;
};

}  // namespace ac2::internal
