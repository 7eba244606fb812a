#include "ac2/internal/locks/fork_locks.h"

#include <pthread.h>

#include <array>
#include <ctime>
#include <new>
#include <type_traits>
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

template <class M>
bool lock_in_a_second(M& mutex) ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true, mutex) {
  const timespec deadline = latest();
  return pthread_mutex_timedlock(mutex.native_handle(), &deadline) == 0;
}

bool lock_in_a_second(SharedMutex& mutex) ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true, mutex) {
  const timespec deadline = latest();
  return pthread_rwlock_timedwrlock(static_cast<pthread_rwlock_t*>(mutex.native_handle()), &deadline) == 0;
}

// Of a mutex that KnownMutex has. These opt out of the analysis, which cannot know that it is held.
template <class M>
void unlock_known(void* mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  static_cast<M*>(mutex)->unlock();
}

// A mutex that remembers its holder remembers a thread of the parent's, and would not be unlocked by the child's.
template <class M>
void unlock_known_in_child(void* mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if constexpr (std::is_same_v<M, Mutex>) {
    static_cast<M*>(mutex)->unlock();
  } else {
    new (mutex) M;
  }
}

class KnownMutex {
 public:
  template <class M>
  explicit KnownMutex(M& mutex)
      : mutex_(&mutex),
        lock_([](void* known) { return lock_in_a_second(*static_cast<M*>(known)); }),
        unlock_(&unlock_known<M>),
        unlock_in_child_(&unlock_known_in_child<M>) {}

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

class KnownLocks {
 public:
  static KnownLocks& get();

  void add(ForkLocks::Order order, ForkLocks::Holder holder) {
    const MutexLock lock(mutex_);
    holders_.at(static_cast<size_t>(order)).push_back(holder);
  }
  void add_first(KnownMutex mutex) {
    const MutexLock lock(mutex_);
    first_.push_back(mutex);
  }
  void add_last(KnownMutex mutex) {
    const MutexLock lock(mutex_);
    last_.push_back(mutex);
  }

  // Its own mutex is held from the one to the other.
  void lock_all() ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex_);
  void unlock_all(bool in_child) ABSL_UNLOCK_FUNCTION(mutex_);

 private:
  Mutex mutex_;
  std::vector<KnownMutex> first_ ABSL_GUARDED_BY(mutex_);
  std::array<std::vector<ForkLocks::Holder>, 3> holders_ ABSL_GUARDED_BY(mutex_);  // by order
  std::vector<KnownMutex> last_ ABSL_GUARDED_BY(mutex_);
};

void KnownLocks::lock_all() {
  mutex_.lock();
  for (KnownMutex& mutex : first_) {
    mutex.lock();
  }
  for (const auto& holders : holders_) {
    for (const ForkLocks::Holder& holder : holders) {
      holder.lock();
    }
  }
  for (KnownMutex& mutex : last_) {
    mutex.lock();
  }
}

void KnownLocks::unlock_all(bool in_child) {
  for (KnownMutex& mutex : last_) {
    mutex.unlock(in_child);
  }
  for (auto holders = holders_.rbegin(); holders != holders_.rend(); ++holders) {
    for (const ForkLocks::Holder& holder : *holders) {
      holder.unlock();
    }
  }
  for (KnownMutex& mutex : first_) {
    mutex.unlock(in_child);
  }
  std::vector<void (*)()> after;
  for (const auto& holders : holders_) {
    for (const ForkLocks::Holder& holder : holders) {
      if (holder.after != nullptr) {
        after.push_back(holder.after);
      }
    }
  }
  mutex_.unlock();
  for (void (*const call)() : after) {
    call();
  }
}

// fork() calls them one after the other, which the analysis does not see: what the first one locks is held at its end.
void lock_in_fork() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  KnownLocks::get().lock_all();
}

void unlock_in_parent() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  KnownLocks::get().unlock_all(false);
}

void unlock_in_child() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  KnownLocks::get().unlock_all(true);
}

KnownLocks& KnownLocks::get() {
  static auto* known = [] {
    auto* made = new KnownLocks;  // leaked: a fork may come after static destruction
    pthread_atfork(&lock_in_fork, &unlock_in_parent, &unlock_in_child);
    return made;
  }();
  return *known;
}

}  // namespace

bool lock_for_fork(Mutex& mutex) {
  return lock_in_a_second(mutex);
}

void ForkLocks::add(Order order, Holder holder) {
  KnownLocks::get().add(order, holder);
}

void ForkLocks::add_first(Mutex& mutex) {
  KnownLocks::get().add_first(KnownMutex(mutex));
}

void ForkLocks::add_first(RecursiveMutex& mutex) {
  KnownLocks::get().add_first(KnownMutex(mutex));
}

void ForkLocks::add_first(SharedMutex& mutex) {
  KnownLocks::get().add_first(KnownMutex(mutex));
}

void ForkLocks::add_last(Mutex& mutex) {
  KnownLocks::get().add_last(KnownMutex(mutex));
}

}  // namespace ac2::internal
