// Objects with a lock and a thread, which a fork() must find in order. The fork waits until it has the locks of all, so
// that the child, in which their threads are not, finds them free. ForkLocks of ac2/internal/locks cannot serve here:
// it waits a second and no longer, and does not tell the child from the parent.
//
//   class Writer final : public WatchesFork { … };
//   ForkWatch::get().add(this);      // once it is whole
//   ForkWatch::get().remove(this);   // before it is not any more
//
// Threads: any.
#pragma once

#include "absl/container/flat_hash_set.h"
#include "ac2/internal/locks/mutex.h"

namespace ac2::policies::internal {

class WatchesFork {
 public:
  virtual void lock_for_fork() = 0;
  virtual void unlock_after_fork() = 0;
  // In the child, with the lock: the object's thread is not there, and never ends.
  virtual void forked() = 0;

 protected:
  virtual ~WatchesFork() = default;
};

class ForkWatch {
 public:
  static ForkWatch& get();
  void add(WatchesFork* object);
  void remove(WatchesFork* object);

 private:
  ForkWatch();
  static void lock_all() ABSL_EXCLUSIVE_LOCK_FUNCTION(get().mutex_);
  static void unlock_all() ABSL_UNLOCK_FUNCTION(get().mutex_);
  static void begin_anew() ABSL_UNLOCK_FUNCTION(get().mutex_);

  ac2::internal::Mutex mutex_;
  absl::flat_hash_set<WatchesFork*> objects_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ac2::policies::internal
