// fork() while other threads are in ac2: the child finds the locks free.
#include "ac2/internal/locks/fork_locks.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

namespace ac2::internal {
namespace {

// Whether `works` returns true in a child.
bool in_child(const std::function<bool()>& works) {
  const pid_t child = fork();
  if (child == 0) {
    _exit(works() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

template <class Mutex>
bool can_be_locked(Mutex& mutex) {
  const std::unique_lock lock(mutex, std::try_to_lock);
  return lock.owns_lock();
}

std::atomic<int> locked_holders{0};
int lock_order[3];

template <int kNumber>
ForkLocks::Holder holder() {
  return {.lock = [] { lock_order[kNumber] = locked_holders.fetch_add(1); },
          .unlock = [] { locked_holders.fetch_sub(1); }};
}

// A thread that has the mutex until `is_over`.
class OtherThread {
 public:
  template <class Mutex>
  OtherThread(Mutex& mutex, std::atomic<bool>& is_over)
      : thread_([&] {
          const std::lock_guard lock(mutex);
          holds_.store(true);
          while (!is_over.load()) {
            std::this_thread::yield();
          }
        }) {
    while (!holds_.load()) {
      std::this_thread::yield();
    }
  }
  void join() { thread_.join(); }

 private:
  std::atomic<bool> holds_{false};
  std::thread thread_;
};

TEST(ForkLocksTest, AMutexThatAnotherThreadHasIsWaitedForAndIsFreeInTheChild) {
  static Mutex mutex;
  ForkLocks::add_last(mutex);
  static std::atomic<bool> forks{false};  // the thread that forks waits for the mutex then, or is about to
  ForkLocks::add(ForkLocks::Order::kFirst, {.lock = [] { forks.store(true); }, .unlock = [] {}});
  OtherThread other(mutex, forks);
  EXPECT_TRUE(in_child([] { return can_be_locked(mutex); }));
  EXPECT_TRUE(can_be_locked(mutex));
  other.join();
}

// Mutex forgets who has it. These two do not, and the child's thread has another number than the parent's.
template <class Mutex>
class RememberingMutexTest : public ::testing::Test {};
using RememberingMutexes = ::testing::Types<RecursiveMutex, SharedMutex>;
TYPED_TEST_SUITE(RememberingMutexTest, RememberingMutexes);

TYPED_TEST(RememberingMutexTest, IsWaitedForAndIsFreeInEveryThreadOfTheChild) {
  static Mutex before;
  static TypeParam mutex;
  ForkLocks::add_first(before);
  ForkLocks::add_first(mutex);
  std::atomic<bool> forks{false};
  OtherThread other(mutex, forks);
  std::thread watch([&] {
    while (can_be_locked(before)) {
      std::this_thread::yield();
    }
    forks.store(true);  // the thread that forks has `before`, and waits for `mutex` or is about to
  });
  EXPECT_TRUE(in_child([] {
    bool is_free = false;
    std::thread([&] { is_free = can_be_locked(mutex); }).join();
    return is_free && can_be_locked(mutex);
  }));
  EXPECT_TRUE(can_be_locked(mutex));
  watch.join();
  other.join();
}

TEST(ForkLocksTest, AMutexThatIsNotGivenBackIsNotWaitedForForEver) {
  static Mutex mutex;
  ForkLocks::add_last(mutex);
  std::atomic<bool> is_over{false};
  OtherThread other(mutex, is_over);
  EXPECT_FALSE(in_child([] { return can_be_locked(mutex); }));
  is_over.store(true);
  other.join();
  EXPECT_TRUE(can_be_locked(mutex));  // the fork has not given back what it never had
}

TEST(ForkLocksTest, LocksAreTakenInTheirOrderWhicheverWasAddedFirst) {
  ForkLocks::add(ForkLocks::Order::kBudgets, holder<2>());
  ForkLocks::add(ForkLocks::Order::kFirst, holder<0>());
  ForkLocks::add(ForkLocks::Order::kTapes, holder<1>());
  EXPECT_TRUE(
      in_child([] { return locked_holders == 0 && lock_order[0] == 0 && lock_order[1] == 1 && lock_order[2] == 2; }));
  EXPECT_EQ(locked_holders, 0);
}

}  // namespace
}  // namespace ac2::internal
