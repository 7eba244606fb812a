#include "ac2/internal/replay/saved_leaf.h"

#include <c10/macros/Macros.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>

#include <utility>

#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/internal/tape/outside_writes.h"

namespace ac2::internal {

at::Tensor leaf_behind(const at::Tensor& saved) {
  if (C10_LIKELY(!saved.requires_grad() || torch::autograd::get_current_graph_task_id() == -1)) {
    return saved;
  }
  const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(saved);
  const auto* node = accumulator ? dynamic_cast<const torch::autograd::AccumulateGrad*>(&*accumulator) : nullptr;
  return node != nullptr && has_plain_storage(node->variable) ? node->variable : saved;
}

SavedLeaf::SavedLeaf(const at::Tensor& saved)
    : tensor_(saved.getIntrusivePtr()),
      storage_(saved.unsafeGetTensorImpl()->unsafe_storage().getWeakStorageImpl()),
      version_(version_of(saved.unsafeGetTensorImpl()->version_counter())) {}

SavedLeaf::~SavedLeaf() {
  if (is_held_) {
    c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim(tensor_._unsafe_get_target());
  }
}

void SavedLeaf::hold(const at::TensorBase& self) {
  if (!std::exchange(is_held_, true)) {
    at::Tensor(self).unsafeReleaseIntrusivePtr().release();  // taken back by the destructor
  }
}

void SavedLeaf::before_set_data(const at::TensorBase& tensor) {
  if (tensor_._unsafe_get_target() != tensor.unsafeGetTensorImpl()) {
    return;
  }
  has_other_data_ = !has_plain_storage(*tensor.unsafeGetTensorImpl());
  if (!tensor.requires_grad()) {
    hold(tensor);
  }
}

// The leaf's storage and layout are read without a strong reference, for which Python's lock may be needed. A leaf that
// dies meanwhile has no data. Whether it did is decided by lock() at the end, and not by expired(), which has no order.
at::Tensor SavedLeaf::new_data(Tape& tape, const TapeHook& hook) const {
  if (tensor_.expired()) {
    return {};
  }
  {
    const Tape::Lock locked(tape);
    const c10::TensorImpl& leaf = *tensor_._unsafe_get_target();
    const TensorMeta* meta = hook.meta();
    const bool elsewhere = meta == nullptr
                               ? has_other_data_
                               : leaf.unsafe_storage().unsafeGetStorageImpl() != storage_._unsafe_get_target();
    const bool is_as_saved = meta == nullptr || meta->describes(leaf) || hook.value()->changed_outside();
    if (tensor_.expired() || (!elsewhere && is_as_saved)) {
      return {};
    }
    check_version_of_leaf(leaf, version_);
  }
  const auto leaf = tensor_.lock();
  return leaf ? at::Tensor(leaf).variable_data() : at::Tensor();
}

}  // namespace ac2::internal
