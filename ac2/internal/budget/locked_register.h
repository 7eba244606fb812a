// A budget's register of who holds what, with the budget's lock held as long as this lives: the proof of the lock, by
// which tapes tell what has changed.
//
//   budget->held()->add_hook(value);
#pragma once

#include "ac2/internal/budget/held_register.h"
#include "ac2/internal/locks/mutex.h"

namespace ac2::internal {

class LockedRegister {
 public:
  // The analysis does not follow a lock that a function returns.
  LockedRegister(Mutex& mutex, HeldRegister& held) ABSL_NO_THREAD_SAFETY_ANALYSIS : lock_(mutex), register_(held) {}

  HeldRegister* operator->() const { return &register_; }

 private:
  MutexLock<Mutex> lock_;
  HeldRegister& register_;
};

}  // namespace ac2::internal
