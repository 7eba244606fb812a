// A leaf of autograd's graph that a hook has saved. Autograd keeps such a tensor itself, and so reads the data that the
// tensor has in backward, which set_data() and `.data =` exchange. So does the hook.
//
//   if (is_leaf(impl)) leaf = std::make_unique<SavedLeaf>(leaf_behind(tensor));   // when `tensor` is saved
//   if (at::Tensor data = leaf->new_data(tape, hook); data.defined()) …           // when it is unpacked
//
// While the graph lives, a leaf with a gradient lives too, because autograd accumulates there. A leaf without a
// gradient is held from the moment at which it is given other data. Rejected: a strong reference from the beginning,
// which would keep the bytes of what the region computes again.
//
// Threads: as of the hook that owns it. What says so needs the tape's lock.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>

#include "ac2/internal/tape/tape.h"
#include "ac2/internal/tape/tape_hook.h"

namespace ac2::internal {

// As at::Tensor::is_leaf(), which makes two virtual calls.
inline bool is_leaf(const c10::TensorImpl& impl) {
  const auto* autograd = static_cast<const torch::autograd::AutogradMeta*>(impl.autograd_meta());
  return autograd == nullptr || !autograd->grad_fn_;
}

// A backward that makes a graph saves again the tensors that hooks gave it. Autograd has made a tensor of its own of
// each that stands for a leaf with a gradient, and has given it the leaf's accumulator. Plain autograd saves the leaf
// itself. Returns that leaf, and `saved` if it is no such tensor.
at::Tensor leaf_behind(const at::Tensor& saved);

class SavedLeaf {
 public:
  explicit SavedLeaf(const at::Tensor& saved);
  ~SavedLeaf();
  SavedLeaf(const SavedLeaf&) = delete;
  SavedLeaf& operator=(const SavedLeaf&) = delete;

  // The program is about to give `tensor` other data. With the lock of the hook's tape.
  void before_set_data(const at::TensorBase& tensor);
  // The data that the leaf has now, if the program has given it other data since `hook` saved it; else undefined.
  at::Tensor new_data(Tape& tape, const TapeHook& hook) const;
  // The leaf; null if it has died.
  c10::intrusive_ptr<c10::TensorImpl> lock() const { return tensor_.lock(); }

 private:
  // `self`, which is the leaf, is held from now on.
  void hold(const at::TensorBase& self);

  c10::weak_intrusive_ptr<c10::TensorImpl> tensor_;
  // Where it lay when it was saved; null if it has no plain storage. The reference keeps the address from being another
  // storage's.
  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
  uint32_t version_;      // when it was saved
  bool is_held_ = false;  // there is a strong reference, which a member of its own would make 16 bytes more
  // Set under the tape's lock, and only where there is no storage that would tell.
  bool has_other_data_ = false;
};

}  // namespace ac2::internal
