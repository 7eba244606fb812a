// OpCallbacks have LibTorch call functions of a watch for each op that the dispatcher runs on this thread
// (at::RecordFunction), in a region and outside of one, as long as the watch lives.
//
//   class SineWatch {
//    public:
//     SineWatch() : callbacks_(*this, at::RecordFunctionCallback(&SineWatch::begin)) {}
//
//    private:
//     static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call) {
//       if (SineWatch* const watch = OpCallbacks<SineWatch>::innermost()) …
//       return nullptr;
//     }
//     bool found_ = false;
//     OpCallbacks<SineWatch> callbacks_;  // the last member
//   };
//
// Of several watches of one class on a thread the innermost one, which was made last, sees the ops. Watches of
// different classes see them side by side. LibTorch takes what a function throws for a fault of the function, and goes
// on.
//
// Threads: one; nests.
#pragma once

#include <ATen/record_function.h>

#include <utility>

namespace ac2::internal {

template <class Watch>
class OpCallbacks {
 public:
  // `functions` are the same for all watches of the class.
  OpCallbacks(Watch& watch, at::RecordFunctionCallback functions) : outer_(std::exchange(innermost_, &watch)) {
    if (outer_ == nullptr) {
      handle_ = at::addThreadLocalCallback(functions.scopes({at::RecordScope::FUNCTION}));
    }
  }
  ~OpCallbacks() {
    if (outer_ == nullptr) {
      at::removeCallback(handle_);
    }
    innermost_ = outer_;
  }
  OpCallbacks(const OpCallbacks&) = delete;
  OpCallbacks& operator=(const OpCallbacks&) = delete;

  // Null on a thread that has taken over the callbacks of another one, as those of autograd do.
  static Watch* innermost() { return innermost_; }

 private:
  static inline thread_local Watch* innermost_ = nullptr;

  const at::RecordFunctionGuard enabled_;
  Watch* const outer_;
  at::CallbackHandle handle_ = at::INVALID_CALLBACK_HANDLE;  // of the outermost watch
};

}  // namespace ac2::internal
