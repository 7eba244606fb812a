// The hooks of a tape, the youngest first: the order in which autograd will most likely take them out.
//
// Threads: guarded by the tape's lock. Owns no hook.
#pragma once

#include "ac2/internal/tape/tape_hook.h"

namespace ac2::internal {

class HookList {
 public:
  TapeHook* first() const { return first_; }

  void insert(TapeHook* hook) {
    hook->next_ = first_;
    if (first_ != nullptr) {
      first_->previous_and_pinned_.set(hook);
    }
    first_ = hook;
  }

  void erase(TapeHook* hook) {
    if (walked_to_ == hook) {
      walked_to_ = hook->next_;
    }
    TapeHook* const previous = hook->previous_and_pinned_.get();
    (previous != nullptr ? previous->next_ : first_) = hook->next_;
    if (hook->next_ != nullptr) {
      hook->next_->previous_and_pinned_.set(previous);
    }
  }

  // How far the one walk through the list has come, which takes more than one holding of the lock
  // (replay/read_ahead.h): the hook to look at next, null at the end. The walk moves on when that hook leaves the list.
  const TapeHook* walked_to() const { return walked_to_; }
  void set_walked_to(const TapeHook* hook) { walked_to_ = hook; }

 private:
  TapeHook* first_ = nullptr;
  const TapeHook* walked_to_ = nullptr;
};

}  // namespace ac2::internal
