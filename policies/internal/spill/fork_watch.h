// Objects with a lock and a thread, which a fork() must find in order. The fork waits until it has the locks of all, so
// that the child, in which their threads are not, finds them free. ForkLocks of ac2/internal/allocator cannot serve
// here, because policies see the public headers alone.
//
//   class Writer final : public WatchesFork { … };
//   ForkWatch::get().add(this);      // once it is whole
//   ForkWatch::get().remove(this);   // before it is not any more
//
// Threads: any.
#pragma once

#include <mutex>

#include "absl/container/flat_hash_set.h"

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
  static void lock_all();
  static void unlock_all();
  static void begin_anew();

  std::mutex mutex_;
  absl::flat_hash_set<WatchesFork*> objects_;
};

}  // namespace ac2::policies::internal
