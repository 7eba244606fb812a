// The hooks of a tape, the youngest first: the order in which autograd will most likely take them out.
//
// Threads: guarded by the tape's lock. Owns no hook.
#pragma once

#include <memory>

#include "ac2/internal/tape/tape_hook.h"

namespace ac2::internal {

// A walker that has a place in the list, and must move on when the hook there leaves the list.
class HookListener {
 public:
  virtual ~HookListener() = default;
  // `hook` is about to leave the list.
  virtual void leaving(const TapeHook& hook) = 0;
};

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
    if (listener_) {
      listener_->leaving(*hook);
    }
    TapeHook* const previous = hook->previous_and_pinned_.get();
    (previous != nullptr ? previous->next_ : first_) = hook->next_;
    if (hook->next_ != nullptr) {
      hook->next_->previous_and_pinned_.set(previous);
    }
  }

  // There may be one, which lives as long as the list.
  HookListener* listener() const { return listener_.get(); }
  void set_listener(std::unique_ptr<HookListener> listener) { listener_ = std::move(listener); }

 private:
  TapeHook* first_ = nullptr;
  std::unique_ptr<HookListener> listener_;
};

}  // namespace ac2::internal
