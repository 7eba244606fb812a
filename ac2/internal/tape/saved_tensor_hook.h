// What autograd holds in place of a tensor it saved: a value of the tape, and the tensor's view of it.
//
// Threads: the engine may unpack and destroy hooks on any thread. All that is public but the hooks themselves needs the
// tape's lock.
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>
#include <new>

#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

class SavedTensorHook final : public torch::autograd::SavedVariableHooks {
 public:
  explicit SavedTensorHook(std::shared_ptr<Tape> tape) : tape_(std::move(tape)) {}
  ~SavedTensorHook() override;
  // Its memory is the tape's; see Tape::make_hook().
  static void operator delete(SavedTensorHook* hook, std::destroying_delete_t);
  SavedTensorHook(const SavedTensorHook&) = delete;
  SavedTensorHook& operator=(const SavedTensorHook&) = delete;

  void call_pack_hook(const at::Tensor& tensor) override;
  at::Tensor call_unpack_hook() override;

  SavedTensorHook* next() const { return next_; }
  const Value* value() const { return value_; }
  // Null for tensors without plain storage.
  const TensorMeta* meta() const { return meta_; }
  // To a value with the same bytes where the hook sees them. Not while it is pinned.
  void move_to(Value* value);
  bool is_pinned() const { return pinned_; }
  void pin();
  void unpin();

 private:
  friend class Tape;

  // What most unpacks come to, under one lock: undefined if there is more to do.
  at::Tensor unpack_at_hand(int graph_task);

  std::shared_ptr<Tape> tape_;
  Value* value_ = nullptr;
  const TensorMeta* meta_ = nullptr;
  SavedTensorHook* next_ = nullptr;
  SavedTensorHook* previous_ = nullptr;
  bool pinned_ = false;
};

}  // namespace ac2::internal
