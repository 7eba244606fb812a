#include "policies/internal/spill/fork_watch.h"

#include <pthread.h>

namespace ac2::policies::internal {

ForkWatch& ForkWatch::get() {
  static auto* all = new ForkWatch;  // leaked: graphs with static lifetime are freed after main()
  return *all;
}

ForkWatch::ForkWatch() {
  pthread_atfork(&lock_all, &unlock_all, &begin_anew);
}

void ForkWatch::add(WatchesFork* object) {
  const ac2::internal::MutexLock lock(mutex_);
  objects_.insert(object);
}

void ForkWatch::remove(WatchesFork* object) {
  const ac2::internal::MutexLock lock(mutex_);
  objects_.erase(object);
}

void ForkWatch::lock_all() {
  get().mutex_.lock();
  for (WatchesFork* object : get().objects_) object->lock_for_fork();
}

void ForkWatch::unlock_all() {
  for (WatchesFork* object : get().objects_) object->unlock_after_fork();
  get().mutex_.unlock();
}

void ForkWatch::begin_anew() {
  for (WatchesFork* object : get().objects_) object->forked();
  unlock_all();
}

}  // namespace ac2::policies::internal
