#include "ac2/internal/libtorch/fork_locks.h"

#include <pthread.h>

#include <array>
#include <ctime>
#include <new>
#include <utility>
#include <vector>

namespace ac2::internal {

namespace {

constexpr int kSeconds = 1;

// Not lock_in_time(): on a busy machine the thread that has the mutex may wait for a processor for longer than that.
timespec latest() {
  timespec deadline;
  clock_gettime(CLOCK_REALTIME, &deadline);
  deadline.tv_sec += kSeconds;
  return deadline;
}

template <class Mutex>
bool lock_in_a_second(Mutex& mutex) {
  const timespec deadline = latest();
  return pthread_mutex_timedlock(mutex.native_handle(), &deadline) == 0;
}

bool lock_in_a_second(std::shared_mutex& mutex) {
  const timespec deadline = latest();
  return pthread_rwlock_timedwrlock(static_cast<pthread_rwlock_t*>(mutex.native_handle()), &deadline) == 0;
}

void give_back_in_child(std::mutex& mutex) {
  mutex.unlock();
}

// A mutex that remembers its holder remembers a thread of the parent's, and would not be unlocked by the child's.
template <class Mutex>
void give_back_in_child(Mutex& mutex) {
  new (&mutex) Mutex;
}

class KnownMutex {
 public:
  template <class Mutex>
  explicit KnownMutex(Mutex& mutex)
      : mutex_(&mutex),
        lock_([](void* known) { return lock_in_a_second(*static_cast<Mutex*>(known)); }),
        unlock_([](void* known) { static_cast<Mutex*>(known)->unlock(); }),
        unlock_in_child_([](void* known) { give_back_in_child(*static_cast<Mutex*>(known)); }) {}

  void lock() { is_ours_ = lock_(mutex_); }
  void unlock(bool in_child) {
    if (std::exchange(is_ours_, false)) {
      (in_child ? unlock_in_child_ : unlock_)(mutex_);
    }
  }

 private:
  void* mutex_;
  bool (*lock_)(void*);
  void (*unlock_)(void*);
  void (*unlock_in_child_)(void*);
  bool is_ours_ = false;
};

struct KnownLocks {
  static KnownLocks& get();

  std::mutex mutex;
  std::vector<KnownMutex> first;
  std::array<std::vector<ForkLocks::Holder>, 3> holders;  // by order
  std::vector<KnownMutex> last;
};

void lock_all() {
  KnownLocks& known = KnownLocks::get();
  known.mutex.lock();
  for (KnownMutex& mutex : known.first) {
    mutex.lock();
  }
  for (const auto& holders : known.holders) {
    for (const ForkLocks::Holder& holder : holders) {
      holder.lock();
    }
  }
  for (KnownMutex& mutex : known.last) {
    mutex.lock();
  }
}

void unlock_all(bool in_child) {
  KnownLocks& known = KnownLocks::get();
  for (KnownMutex& mutex : known.last) {
    mutex.unlock(in_child);
  }
  for (auto holders = known.holders.rbegin(); holders != known.holders.rend(); ++holders) {
    for (const ForkLocks::Holder& holder : *holders) {
      holder.unlock();
    }
  }
  for (KnownMutex& mutex : known.first) {
    mutex.unlock(in_child);
  }
  std::vector<void (*)()> after;
  for (const auto& holders : known.holders) {
    for (const ForkLocks::Holder& holder : holders) {
      if (holder.after != nullptr) {
        after.push_back(holder.after);
      }
    }
  }
  known.mutex.unlock();
  for (void (*const call)() : after) {
    call();
  }
}

void unlock_in_parent() {
  unlock_all(false);
}

void unlock_in_child() {
  unlock_all(true);
}

KnownLocks& KnownLocks::get() {
  static auto* known = [] {
    auto* made = new KnownLocks;  // leaked: a fork may come after static destruction
    pthread_atfork(&lock_all, &unlock_in_parent, &unlock_in_child);
    return made;
  }();
  return *known;
}

void add_to(std::vector<KnownMutex> KnownLocks::*list, KnownMutex mutex) {
  KnownLocks& known = KnownLocks::get();
  const std::lock_guard lock(known.mutex);
  (known.*list).push_back(mutex);
}

}  // namespace

bool lock_for_fork(std::mutex& mutex) {
  return lock_in_a_second(mutex);
}

void ForkLocks::add(Order order, Holder holder) {
  KnownLocks& known = KnownLocks::get();
  const std::lock_guard lock(known.mutex);
  known.holders.at(static_cast<size_t>(order)).push_back(holder);
}

void ForkLocks::add_first(std::mutex& mutex) {
  add_to(&KnownLocks::first, KnownMutex(mutex));
}

void ForkLocks::add_first(std::recursive_mutex& mutex) {
  add_to(&KnownLocks::first, KnownMutex(mutex));
}

void ForkLocks::add_first(std::shared_mutex& mutex) {
  add_to(&KnownLocks::first, KnownMutex(mutex));
}

void ForkLocks::add_last(std::mutex& mutex) {
  add_to(&KnownLocks::last, KnownMutex(mutex));
}

}  // namespace ac2::internal
