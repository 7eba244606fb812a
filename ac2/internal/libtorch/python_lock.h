// Lets go of Python's lock, the GIL, while a thread waits for others, which may want it.
//
//   const WithoutPythonLock without;   // does nothing where this thread has not got the lock, or there is no Python
//   …wait for another thread…
//
// Python's autograd functions save and unpack tensors with the lock. ac2 may then wait for a thread that runs a policy,
// an unpack function or an op that is written in Python, or that lets go of a tensor which Python has.
//
// Threads: concerns the thread that makes it.
#pragma once

#include "absl/base/thread_annotations.h"

#include "ac2/internal/locks/mutex.h"

namespace ac2::internal {

class WithoutPythonLock {
 public:
  WithoutPythonLock();
  ~WithoutPythonLock();
  WithoutPythonLock(const WithoutPythonLock&) = delete;
  WithoutPythonLock& operator=(const WithoutPythonLock&) = delete;

 private:
  void* let_go_ = nullptr;
};

// Locks `mutex`, and waits for it without Python's lock.
template <class M>
void lock_without_python(M& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) {
  if (!mutex.try_lock()) {
    const WithoutPythonLock without;
    mutex.lock();
  }
}

}  // namespace ac2::internal
