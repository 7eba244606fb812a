// An object that each thread has for itself, and that is there for as long as the thread runs any code.
//
//   State& state = PerThread<State>::here();    // made by the thread's first call
//
// A thread_local object with a destructor is gone while destructors of other thread_local objects still run, and in the
// main thread while functions of atexit() and destructors of static objects run: a region that lives as long as the
// program is closed then. This object is destroyed after all thread_local ones of its thread, when the thread ends. A
// call that comes later makes a new one. The main thread's is never destroyed when the program ends by exit() or by the
// return of main().
//
// Threads: any.
#pragma once

#include <c10/macros/Macros.h>
#include <c10/util/Exception.h>
#include <limits.h>
#include <pthread.h>

namespace ac2::internal {

template <class T>
class PerThread {
 public:
  static T& here() {
    T* const object = object_;
    return C10_LIKELY(object != nullptr) ? *object : make();
  }

 private:
  C10_NOINLINE static T& make() {
    // A key's destructor runs again for what it has stored itself, so that `end` may lead back here.
    static const pthread_key_t key = [] {
      pthread_key_t made{};
      TORCH_CHECK(pthread_key_create(&made, &end) == 0, "ac2 needs a key for data of threads, and all ",
                  PTHREAD_KEYS_MAX,
                  " keys of this process are taken (pthread_key_create). Other libraries of the process have to delete "
                  "keys that they do not use.");
      return made;
    }();
    object_ = new T();
    pthread_setspecific(key, object_);
    return *object_;
  }

  static void end(void* object) {
    object_ = nullptr;
    delete static_cast<T*>(object);
  }

  // Without a destructor, so that it can be read at any time.
  static inline constinit thread_local T* object_ = nullptr;
};

}  // namespace ac2::internal
