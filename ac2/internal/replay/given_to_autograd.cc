#include "ac2/internal/replay/given_to_autograd.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <utility>

#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/libtorch/unrecorded.h"

namespace ac2::internal {

namespace {

// The node that backward is in is no derivative of LibTorch's. Those return no tensor that they have saved.
bool is_in_function_of_program() {
  const auto node = torch::autograd::get_current_node();
  return node != nullptr && dynamic_cast<const torch::autograd::TraceableFunction*>(&*node) == nullptr;
}

// Whether the bytes of the tensor are read again after the function that unpacks it now. The function may return the
// tensor as a gradient. Autograd writes into a gradient to which there is no other reference. In plain autograd there
// is one, because the graph has the tensor itself.
bool is_read_again_as_gradient(Tape& tape, const TapeHook& hook, const at::Tensor& unpacked) {
  // Autograd itself copies a gradient of another layout, and each in a backward that makes a graph.
  if (hook.meta() == nullptr || at::GradMode::is_enabled() || unpacked.use_count() > 1 ||
      !unpacked.is_non_overlapping_and_dense() || unpacked.storage().use_count() == 1 || !is_in_function_of_program()) {
    return false;
  }
  const Tape::Lock locked(tape);
  return torch::autograd::get_current_graph_task_keep_graph() || !hook.value()->is_used_only_by(1);
}

// Autograd sees until the end of the backward that somebody else has the tensor, so that it needs no copy. False if its
// bytes might be let go of before: under a budget, and where the graph is not retained.
bool lend(Tape& tape, const TapeHook& hook, const at::Tensor& unpacked) {
  const Tape::Lock locked(tape);
  if (tape.budget() != nullptr || !hook.value()->is_held_in_a_storage() ||
      !torch::autograd::get_current_graph_task_keep_graph() ||
      !locked->is_active(torch::autograd::get_current_graph_task_id())) {
    return false;
  }
  locked->lent_tensors().push_back(unpacked);
  return true;
}

at::Tensor copy_to_give(const at::Tensor& tensor) {
  const Unrecorded unrecorded;
  return tensor.clone();
}

}  // namespace

at::Tensor leaf_to_give(Tape& tape, const TapeHook& hook, const SavedLeaf& leaf, at::Tensor unpacked) {
  auto saved = leaf.lock();
  if (saved && saved->requires_grad()) {
    return unpacked;  // autograd makes a tensor of its own over these bytes
  }
  if (saved && unpacked.has_storage() && hook.meta() != nullptr && hook.meta()->describes(*saved)) {
    at::Tensor tensor(std::move(saved));
    if (tensor.storage().is_alias_of(unpacked.storage())) {
      return tensor;
    }
  }
  return !is_read_again_as_gradient(tape, hook, unpacked) || lend(tape, hook, unpacked) ? unpacked
                                                                                        : copy_to_give(unpacked);
}

// Replayed and copied bytes have no counter to share: no tensor of the program's lies there.
void share_version_counter(Tape& tape, const TapeHook& hook, const at::Tensor& unpacked) {
  if (hook.meta() == nullptr || !unpacked.defined() || !has_plain_storage(*unpacked.unsafeGetTensorImpl())) {
    return;
  }
  const Tape::Lock locked(tape);
  const c10::VariableVersion& counter = hook.value()->versions().counter();
  if (counter.enabled() && hook.value()->watched_storage() == unpacked.storage().unsafeGetStorageImpl()) {
    unpacked.unsafeGetTensorImpl()->set_version_counter(counter);
  }
}

void note_unpacked(Tape& tape, TapeHook& hook, const at::Tensor& unpacked) {
  if (hook.meta() == nullptr || !has_plain_storage(unpacked)) {
    return;
  }
  const Tape::Lock locked(tape);
  if (!locked->is_closed()) {
    locked->storages().was_unpacked(unpacked, hook.value());
  }
}

}  // namespace ac2::internal
