#include "ac2/internal/allocator/fork_locks.h"

#include <pthread.h>

#include <array>
#include <ctime>
#include <vector>

namespace ac2::internal {

namespace {

constexpr int kSeconds = 1;

struct LastLock {
  std::mutex* mutex;
  bool is_ours = false;
};

struct KnownLocks {
  static KnownLocks& get();

  std::mutex mutex;
  std::array<std::vector<ForkLocks::Holder>, 3> holders;  // by order
  std::vector<LastLock> last;
};

void lock_all() {
  KnownLocks& known = KnownLocks::get();
  known.mutex.lock();
  for (const auto& holders : known.holders) {
    for (const ForkLocks::Holder& holder : holders) {
      holder.lock();
    }
  }
  for (LastLock& lock : known.last) {
    lock.is_ours = lock_for_fork(*lock.mutex);
  }
}

void unlock_all() {
  KnownLocks& known = KnownLocks::get();
  for (LastLock& lock : known.last) {
    if (lock.is_ours) {
      lock.mutex->unlock();
    }
  }
  for (auto holders = known.holders.rbegin(); holders != known.holders.rend(); ++holders) {
    for (const ForkLocks::Holder& holder : *holders) {
      holder.unlock();
    }
  }
  known.mutex.unlock();
}

KnownLocks& KnownLocks::get() {
  static auto* known = [] {
    auto* made = new KnownLocks;  // leaked: a fork may come after static destruction
    pthread_atfork(&lock_all, &unlock_all, &unlock_all);
    return made;
  }();
  return *known;
}

}  // namespace

bool lock_for_fork(std::mutex& mutex) {
  // Not lock_in_time(): on a busy machine the thread that has the mutex may wait for a processor for longer than that.
  timespec deadline;
  clock_gettime(CLOCK_REALTIME, &deadline);
  deadline.tv_sec += kSeconds;
  return pthread_mutex_timedlock(mutex.native_handle(), &deadline) == 0;
}

void ForkLocks::add(Order order, Holder holder) {
  KnownLocks& known = KnownLocks::get();
  const std::lock_guard lock(known.mutex);
  known.holders.at(static_cast<size_t>(order)).push_back(holder);
}

void ForkLocks::add_last(std::mutex& mutex) {
  KnownLocks& known = KnownLocks::get();
  const std::lock_guard lock(known.mutex);
  known.last.push_back({&mutex});
}

}  // namespace ac2::internal
