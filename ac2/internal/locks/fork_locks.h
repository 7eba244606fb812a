// Locks that a fork() takes, so that the child finds them free.
//
//   ForkLocks::add_last(state->mutex);                                            // of a state that is never destroyed
//   ForkLocks::add(ForkLocks::Order::kTapes, {.lock = &lock_all, .unlock = &unlock_all});
//
// Only the thread that calls fork() lives on in the child. A mutex that another thread holds at that moment is locked
// there for ever, and the first allocation of a DataLoader's worker would wait for it. So fork() takes the locks first,
// in the order in which the rest of ac2 takes them, and both processes give them back.
//
// Not guaranteed: each lock is waited for with lock_for_fork(), because another thread may hold it while it waits for
// what the forking thread has. A lock that did not become free stays locked in the child. A static variable that
// another thread is making at that moment is never made in the child.
//
// Threads: any.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "ac2/internal/locks/mutex.h"
#include "ac2/internal/locks/shared_mutex.h"

namespace ac2::internal {

// False if the mutex did not become free within a second.
bool lock_for_fork(Mutex& mutex) ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true, mutex);

class ForkLocks {
 public:
  enum class Order : uint8_t { kFirst, kTapes, kBudgets };
  struct Holder {
    void (*lock)() = nullptr;    // does not wait for ever
    void (*unlock)() = nullptr;  // unlocks what lock() has locked, in the parent and in the child
    // Then, without any of these locks: lets go of what was held meanwhile. May be null.
    void (*after)() = nullptr;
  };

  static void add(Order order, Holder holder);
  // Mutexes that live as long as the process. add_first() is for one that is held while other locks of ac2's are taken:
  // it is taken before all others. One of add_last() is taken after all others.
  static void add_first(Mutex& mutex);
  static void add_first(RecursiveMutex& mutex);
  static void add_first(SharedMutex& mutex);
  static void add_last(Mutex& mutex);
  // A new mutex that is never destroyed, because threads may need it while the process ends.
  template <class M>
  static M& make_first() {
    auto* made = new M;
    add_first(*made);
    return *made;
  }
  static Mutex& make_last() {
    auto* made = new Mutex;
    add_last(*made);
    return *made;
  }
};

}  // namespace ac2::internal
