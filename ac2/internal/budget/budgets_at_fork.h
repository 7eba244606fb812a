// All budgets of the process, for the locks that a fork() takes (ac2/internal/libtorch/fork_locks.h).
//
// A budget is here from its constructor to its destructor.
//
// Threads: any.
#pragma once

#include <mutex>

namespace ac2::internal {

class BudgetAtFork {
 public:
  // `before_tapes` is taken before the locks of tapes, and `after_tapes` and `turn` after them.
  BudgetAtFork(std::mutex& before_tapes, std::mutex& after_tapes, std::mutex& turn);
  ~BudgetAtFork();
  BudgetAtFork(const BudgetAtFork&) = delete;
  BudgetAtFork& operator=(const BudgetAtFork&) = delete;

 private:
  friend class BudgetsAtFork;

  struct ForkedMutex {
    std::mutex& mutex;
    bool is_ours = false;

    void lock();
    void unlock();
  };
  ForkedMutex before_tapes_;
  ForkedMutex after_tapes_;
  ForkedMutex turn_;
};

}  // namespace ac2::internal
