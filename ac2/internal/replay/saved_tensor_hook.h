// The hook: autograd holds it in place of a tensor that it saved.
//
//   std::unique_ptr<SavedTensorHook> hook = SavedTensorHook::make(tape);
//
// Threads: made by the recording thread; the engine may unpack and destroy hooks on any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SafePyObject.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "ac2/internal/tape/tape.h"
#include "ac2/internal/tape/tape_hook.h"

namespace ac2::internal {

class SavedLeaf;

class SavedTensorHook final : public torch::autograd::SavedVariableHooks, public TapeHook {
 public:
  static std::unique_ptr<SavedTensorHook> make(std::shared_ptr<Tape> tape);
  ~SavedTensorHook() override;
  // Lets go of the value, and gives the memory back to the tape, whose it is.
  static void operator delete(SavedTensorHook* hook, std::destroying_delete_t);

  void call_pack_hook(const at::Tensor& tensor) override;
  at::Tensor call_unpack_hook() override;

  // Throws: compiled autograd, which asks, calls hooks of Python's alone. Not marked `override`, because the function
  // is not the same in LibTorch before 2.7.
  std::optional<std::pair<c10::SafePyObject, c10::SafePyObject>> retrieve_unpack_hook_data() const;

  // Called before `tensor` is given other data: all hooks on it that need it hold it from now on.
  static void before_set_data(const at::TensorBase& tensor);

 private:
  explicit SavedTensorHook(std::shared_ptr<Tape> tape);

  at::Tensor unpack(int graph_task, bool grad_mode);
  // The value's bytes, also those of an opaque value that is held whole.
  at::Tensor unpack_value(int graph_task);
  // The short way of most unpacks, under one lock. Undefined if there is more to do.
  at::Tensor unpack_at_hand(int graph_task);
  // Where backwards that share a budget replay the same ops again and again, one of them goes first; see BackwardTurn.
  void take_turn_of_budget(int graph_task);
  // The long way, while no other thread replays on the tape.
  at::Tensor unpack_in_turn(int graph_task);
  at::Tensor unpack_pinned();
  // This backward has what it wanted.
  void unpin_unpacked(LockedTape& tape);

  void pack(const at::Tensor& tensor, const OpaqueForm* made);
  // A tensor without plain storage; see saved_parts.h.
  void pack_whole(const at::Tensor& tensor);
  // Undefined if the value, which is opaque, is held whole.
  at::Tensor unpack_whole();

  std::shared_ptr<Tape> tape_;
  std::unique_ptr<SavedLeaf> leaf_;  // null if what was saved is no leaf; few are
};

}  // namespace ac2::internal
