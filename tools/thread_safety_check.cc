// Mistakes with locks, each of which clang's thread safety analysis must find: tools/thread_safety_check compares what
// it says with the comments here. No build compiles this file.
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "ac2/internal/locks/condition.h"
#include "ac2/internal/locks/fork_locks.h"
#include "ac2/internal/locks/lock_in_time.h"
#include "ac2/internal/locks/mutex.h"
#include "ac2/internal/locks/shared_mutex.h"

namespace ac2::internal {
namespace {

class Counter {
 public:
  int without_a_lock() const {
    return count_;  // expected-error {{reading variable 'count_' requires holding mutex 'mutex_'}}
  }
  void after_the_lock() {
    {
      const MutexLock lock(mutex_);
      ++count_;
    }
    ++count_;  // expected-error {{writing variable 'count_' requires holding mutex 'mutex_' exclusively}}
  }
  void through_a_pointer() {
    ++*pointed_to_;  // expected-error {{writing the value pointed to by 'pointed_to_' requires holding mutex 'mutex_'}}
  }
  void calls_without_the_lock() {
    add();  // expected-error {{calling function 'add' requires holding mutex 'mutex_' exclusively}}
  }
  void calls_with_the_lock() {
    const MutexLock lock(mutex_);
    look();  // expected-error {{cannot call function 'look' while mutex 'mutex_' is held}}
  }
  void twice() {
    const MutexLock lock(mutex_);   // expected-note {{mutex acquired here}}
    const MutexLock again(mutex_);  // expected-error {{acquiring mutex 'mutex_' that is already held}}
  }
  void in_the_wrong_order() {
    const MutexLock lock(mutex_);
    const MutexLock first(first_mutex_);  // expected-error {{mutex 'first_mutex_' must be acquired before 'mutex_'}}
  }
  void keeps_it() {
    mutex_.lock();  // expected-note {{mutex acquired here}}
  }                 // expected-error {{mutex 'mutex_' is still held at the end of function}}
  void gives_back_too_much() {
    mutex_.unlock();  // expected-error {{releasing mutex 'mutex_' that was not held}}
  }
  void when_it_was_not_free() {
    if (!lock_in_time(mutex_)) {
      ++count_;  // expected-error {{writing variable 'count_' requires holding mutex 'mutex_' exclusively}}
      return;
    }
    const MutexLock lock(mutex_, std::adopt_lock);
    ++count_;
  }
  void given_back() {
    ReleasableMutexLock lock(mutex_);
    ++count_;
    lock.unlock();
    ++count_;  // expected-error {{writing variable 'count_' requires holding mutex 'mutex_' exclusively}}
    lock.lock();
    ++count_;
  }
  void waits_without_it() {
    changed_.wait(mutex_);  // expected-error {{calling function 'wait' requires holding mutex 'mutex_' exclusively}}
  }
  void of_another_object(Counter& other) {
    const MutexLock lock(mutex_);
    ++other.count_;  // expected-error {{writing variable 'count_' requires holding mutex 'other.mutex_' exclusively}}
                     // expected-note@-1 {{found near match 'mutex_'}}
  }
  int in_a_function() {
    const MutexLock lock(mutex_);
    const auto read = [this] {
      return count_;  // expected-error {{reading variable 'count_' requires holding mutex 'mutex_'}}
    };
    return read();
  }

 private:
  void add() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { ++count_; }
  void look() ABSL_LOCKS_EXCLUDED(mutex_) {}

  Mutex first_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  Mutex mutex_;
  Condition changed_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
  int* pointed_to_ ABSL_PT_GUARDED_BY(mutex_) = nullptr;
};

class Shared {
 public:
  void writes_beside_others() {
    mutex_.lock_shared();
    ++count_;  // expected-error {{writing variable 'count_' requires holding mutex 'mutex_' exclusively}}
    mutex_.unlock_shared();
  }

 private:
  SharedMutex mutex_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};

class Turn {
 public:
  RecursiveMutex& turn() ABSL_LOCK_RETURNED(turn_) { return turn_; }
  void take() {
    const MutexLock lock(turn());
    ++taken_;
  }
  void does_not_take() {
    ++taken_;  // expected-error {{writing variable 'taken_' requires holding mutex 'turn_' exclusively}}
  }

 private:
  RecursiveMutex turn_;
  int taken_ ABSL_GUARDED_BY(turn_) = 0;
};

int next() {
  static auto& mutex = ForkLocks::make_last();
  static int last ABSL_GUARDED_BY(mutex) = 0;
  return ++last;  // expected-error {{writing variable 'last' requires holding mutex 'mutex' exclusively}}
}

}  // namespace
}  // namespace ac2::internal
