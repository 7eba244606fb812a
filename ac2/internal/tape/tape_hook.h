// The tape's side of what autograd holds in place of a tensor that it saved: a value, and the tensor's view of it.
// SavedTensorHook, in //ac2/internal/replay, is what autograd sees.
//
// Threads: guarded by the tape's lock.
#pragma once

#include <ATen/core/Tensor.h>

#include "ac2/internal/graph/node.h"
#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/tape/flagged_pointer.h"

namespace ac2::internal {

class LockedTape;

class TapeHook {
 public:
  TapeHook(const TapeHook&) = delete;
  TapeHook& operator=(const TapeHook&) = delete;

  // The value; null before the hook is attached.
  const Value* value() const { return value_; }
  Value* value() { return value_; }
  // How the tensor lies in the value's storage; null for tensors without plain storage.
  const TensorMeta* meta() const { return meta_; }
  // The next older one in the tape's list.
  TapeHook* next() const { return next_; }

  // To a value with the same bytes where the hook sees them. Not while it is pinned.
  void move_to(LockedTape& tape, Value* value);

  // A backward needs the value, until the hook is unpinned. Both do nothing the second time.
  bool is_pinned() const { return previous_and_pinned_.flag(); }
  void pin(LockedTape& tape);
  void unpin(LockedTape& tape);

 protected:
  TapeHook() = default;
  ~TapeHook() = default;

  // The hook wants the value that the storage of `tensor` holds now, which is held or kept from now on as was decided.
  // `made` has the alias or the parts of a tensor of which there must be one of them, else it is null.
  void attach(LockedTape& tape, const at::Tensor& tensor, const OpaqueForm* made = nullptr);
  // The hook wants its value no more. Does nothing if it never did.
  void detach(LockedTape& tape);

 private:
  friend class HookList;

  Value* value_ = nullptr;
  const TensorMeta* meta_ = nullptr;
  TapeHook* next_ = nullptr;
  FlaggedPointer<TapeHook> previous_and_pinned_;  // there are as many hooks as autograd saves tensors
};

}  // namespace ac2::internal
