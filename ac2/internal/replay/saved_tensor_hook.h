// The hook: autograd holds it in place of a tensor that it saved.
//
//   std::unique_ptr<SavedTensorHook> hook = SavedTensorHook::make(tape);
//
// Threads: made by the recording thread; the engine may unpack and destroy hooks on any thread.
#pragma once

#include <c10/core/SafePyObject.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "ac2/internal/tape/tape.h"
#include "ac2/internal/tape/tape_hook.h"

namespace ac2::internal {

class SavedTensorHook final : public torch::autograd::SavedVariableHooks, public TapeHook {
 public:
  static std::unique_ptr<SavedTensorHook> make(std::shared_ptr<Tape> tape);
  ~SavedTensorHook() override = default;
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
  explicit SavedTensorHook(std::shared_ptr<Tape> tape) : tape_(std::move(tape)) {}

  at::Tensor unpack(int graph_task, bool grad_mode);
  // The value's bytes, also those of an opaque value that is held whole.
  at::Tensor unpack_value(int graph_task);
  // A backward that makes a graph is about to be given the value's bytes. If it runs in the region, its ops are
  // recorded, and take the value and not the tensor.
  void note_unpacked(const at::Tensor& tensor);
  // A leaf without a gradient, if its bytes are those that were unpacked: plain autograd gives functions the tensor
  // itself. Else the unpacked tensor, lent or copied if is_read_again_as_gradient().
  at::Tensor leaf_itself(at::Tensor unpacked);
  // A backward that makes a graph saves the unpacked tensor once more. Writes to what was saved in forward are errors
  // for that graph too, as in plain autograd, where both graphs have one tensor.
  void share_version_counter(const at::Tensor& unpacked);
  // Whether the bytes of the tensor are read again after the function that unpacks it now. The function may return the
  // tensor as a gradient. Autograd writes into a gradient to which there is no other reference. In plain autograd there
  // is one, because the graph has the tensor itself.
  bool is_read_again_as_gradient(const at::Tensor& unpacked);
  // Autograd sees until the end of the backward that somebody else has the tensor, so that it needs no copy. False if
  // its bytes might be let go of before: under a budget, and where the graph is not retained.
  bool lend(const at::Tensor& unpacked);
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
  // A tensor that is no plain storage: sparse, a subclass that is written in Python, and so on.
  void pack_whole(const at::Tensor& tensor);
  // The parts of a tensor that is made of others; see subclass_codec.h. Its value has them, for all hooks on it.
  struct Parts;
  // None if `tensor` cannot be taken apart.
  c10::IValue pack_parts(const at::Tensor& tensor);
  // Undefined if the value, which is opaque, is held whole.
  at::Tensor unpack_parts();

  // The data that the leaf has now, if the program has given it other data since; else undefined.
  at::Tensor new_data_of_leaf();

  // A leaf that was saved. Autograd keeps such a tensor itself and so reads the data that it has in backward, which
  // set_data() and `.data =` exchange. While the graph lives, a leaf with a gradient lives too, because autograd
  // accumulates there. The hook holds one without a gradient from the moment at which it is given other data; before, a
  // strong reference would keep the bytes of what the region computes again.
  struct Leaf {
    explicit Leaf(const at::Tensor& saved);
    ~Leaf();
    Leaf(const Leaf&) = delete;
    Leaf& operator=(const Leaf&) = delete;

    // `self`, which is the leaf, is held from now on.
    void hold(const at::TensorBase& self);

    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
    // Where it lay when it was saved; null if it has no plain storage. The reference keeps the address from being
    // another storage's.
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    uint32_t version;      // when it was saved
    bool is_held = false;  // the hook has a strong reference, which a member of its own would make 16 bytes more
    // Set under the tape's lock, and only where there is no storage that would tell.
    bool has_other_data = false;
  };

  std::shared_ptr<Tape> tape_;
  std::unique_ptr<Leaf> leaf_;  // null if what was saved is no leaf; few are
};

}  // namespace ac2::internal
