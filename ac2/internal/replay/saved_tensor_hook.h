// What autograd holds in place of a tensor that it saved.
//
//   std::unique_ptr<SavedTensorHook> hook = SavedTensorHook::make(tape);
//
// Threads: made by the recording thread; the engine may unpack and destroy hooks on any thread.
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>
#include <new>
#include <utility>

#include "ac2/internal/tape/tape.h"
#include "ac2/internal/tape/tape_hook.h"

namespace ac2::internal {

class SavedTensorHook final : public torch::autograd::SavedVariableHooks, public TapeHook {
 public:
  static std::unique_ptr<SavedTensorHook> make(std::shared_ptr<Tape> tape);
  ~SavedTensorHook() override;
  // Its memory is the tape's.
  static void operator delete(SavedTensorHook* hook, std::destroying_delete_t);

  void call_pack_hook(const at::Tensor& tensor) override;
  at::Tensor call_unpack_hook() override;

 private:
  explicit SavedTensorHook(std::shared_ptr<Tape> tape) : tape_(std::move(tape)) {}

  // What most unpacks come to, under one lock: undefined if there is more to do.
  at::Tensor unpack_at_hand(int graph_task);
  // All else, alone with the tape among those that replay.
  at::Tensor unpack_in_turn(int graph_task);
  at::Tensor unpack_pinned();

  void pack(const at::Tensor& tensor, const OpaqueForm* made);
  // A tensor that is no plain storage: sparse, a subclass that is written in Python, and so on.
  void pack_whole(const at::Tensor& tensor);
  // Of a tensor that is made of others; see subclass_codec.h. Its value has these, for all hooks on it.
  struct Parts;
  // None if `tensor` cannot be taken apart.
  c10::IValue pack_parts(const at::Tensor& tensor);
  // Undefined if the value, which is opaque, is kept whole.
  at::Tensor unpack_parts();

  std::shared_ptr<Tape> tape_;
};

}  // namespace ac2::internal
