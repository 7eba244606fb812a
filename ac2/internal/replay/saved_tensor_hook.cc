#include "ac2/internal/replay/saved_tensor_hook.h"

#include <ATen/core/grad_mode.h>
#include <c10/macros/Macros.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <optional>
#include <utility>
#include <vector>

#include "ac2/internal/libtorch/graph_making.h"
#include "ac2/internal/libtorch/out_of_memory.h"
#include "ac2/internal/libtorch/python_lock.h"
#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/internal/libtorch/unrecorded.h"
#include "ac2/internal/locks/mutex.h"
#include "ac2/internal/replay/backward_run.h"
#include "ac2/internal/replay/kept_for_next.h"
#include "ac2/internal/replay/pending_work.h"
#include "ac2/internal/replay/read_ahead.h"
#include "ac2/internal/replay/replayed_at_once.h"
#include "ac2/internal/replay/replayer.h"
#include "ac2/internal/replay/subclass_codec.h"
#include "ac2/internal/replay/whose_write.h"
#include "ac2/internal/tape/live_tapes.h"
#include "ac2/internal/tape/outside_writes.h"

namespace ac2::internal {

namespace {

// As at::Tensor::is_leaf(), which makes two virtual calls.
bool is_leaf(const c10::TensorImpl& impl) {
  const auto* autograd = static_cast<const torch::autograd::AutogradMeta*>(impl.autograd_meta());
  return autograd == nullptr || !autograd->grad_fn_;
}

// An argument of the op that autograd is about to run, of which the pack function has dropped the last reference but
// autograd's own. The op would read it through the caller's reference.
C10_NOINLINE void check_argument_was_not_dropped(const at::Tensor& tensor, size_t uses_before) {
  TORCH_CHECK(uses_before == 1 || tensor.use_count() > 1,
              "A pack function dropped the program's last reference to a tensor of shape ", tensor.sizes(),
              ", which an op that is about to run takes as its argument. Drop it after the op, or in a policy.");
}

// The node that backward is in is no derivative of LibTorch's. Those return no tensor that they have saved.
bool is_in_function_of_program() {
  const auto node = torch::autograd::get_current_node();
  return node != nullptr && dynamic_cast<const torch::autograd::TraceableFunction*>(&*node) == nullptr;
}

// A backward that makes a graph saves again the tensors that hooks gave it. Autograd has made a tensor of its own of
// each that stands for a leaf with a gradient, and has given it the leaf's accumulator. Plain autograd saves the leaf
// itself.
at::Tensor leaf_behind(const at::Tensor& saved) {
  if (C10_LIKELY(!saved.requires_grad() || torch::autograd::get_current_graph_task_id() == -1)) {
    return saved;
  }
  const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(saved);
  const auto* node = accumulator ? dynamic_cast<const torch::autograd::AccumulateGrad*>(&*accumulator) : nullptr;
  return node != nullptr && has_plain_storage(node->variable) ? node->variable : saved;
}

at::Tensor copy_of(const at::Tensor& tensor) {
  const Unrecorded unrecorded;
  return tensor.clone();
}

}  // namespace

SavedTensorHook::Leaf::Leaf(const at::Tensor& saved)
    : tensor(saved.getIntrusivePtr()),
      storage(saved.unsafeGetTensorImpl()->unsafe_storage().getWeakStorageImpl()),
      version(version_of(saved.unsafeGetTensorImpl()->version_counter())) {}

SavedTensorHook::Leaf::~Leaf() {
  if (is_held) {
    c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim(tensor._unsafe_get_target());
  }
}

void SavedTensorHook::Leaf::hold(const at::TensorBase& self) {
  if (!std::exchange(is_held, true)) {
    at::Tensor(self).unsafeReleaseIntrusivePtr().release();  // taken back by the destructor
  }
}

std::unique_ptr<SavedTensorHook> SavedTensorHook::make(std::shared_ptr<Tape> tape) {
  static_assert(sizeof(SavedTensorHook) <= sizeof(Tape::HookMemory));
  void* memory = tape->allocate_hook();
  return std::unique_ptr<SavedTensorHook>(::new (memory) SavedTensorHook(std::move(tape)));
}

void SavedTensorHook::operator delete(SavedTensorHook* hook, std::destroying_delete_t) {
  const std::shared_ptr<Tape> tape = std::move(hook->tape_);  // and with it the memory
  {
    const Tape::Lock locked(*tape);
    hook->detach(*locked);
  }
  hook->~SavedTensorHook();
  tape->free_hook(reinterpret_cast<Tape::HookMemory*>(hook));
}

struct SavedTensorHook::Parts : torch::CustomClassHolder {
  std::vector<std::unique_ptr<SavedTensorHook>> hooks;
  c10::IValue context;
};

c10::IValue SavedTensorHook::pack_parts(const at::Tensor& tensor) {
  const SubclassCodec* codec = subclass_codec();
  if (codec == nullptr) {
    return {};
  }
  std::optional<SubclassCodec::Parts> taken = codec->take_apart(tensor);
  if (!taken) {
    return {};
  }
  auto parts = c10::make_intrusive<Parts>();
  parts->context = std::move(taken->context);
  for (const at::Tensor& part : taken->tensors) {
    parts->hooks.push_back(make(tape_));
    parts->hooks.back()->call_pack_hook(part);
  }
  return c10::IValue::make_capsule(std::move(parts));
}

at::Tensor SavedTensorHook::unpack_parts() {
  c10::IValue kept;
  {
    const Tape::Lock tape(*tape_);
    check_opaque_unchanged(*value());
    kept = value()->opaque_form()->parts;
  }
  if (kept.isNone()) {
    return {};
  }
  const auto parts = c10::static_intrusive_pointer_cast<Parts>(kept.toCapsule());
  std::vector<at::Tensor> tensors;
  for (const std::unique_ptr<SavedTensorHook>& hook : parts->hooks) {
    tensors.push_back(hook->call_unpack_hook());
  }
  return subclass_codec()->put_together(tensors, parts->context);
}

C10_NOINLINE void SavedTensorHook::pack_whole(const at::Tensor& tensor) {
  OpaqueForm made;
  {
    const Unrecorded unrecorded;
    made.parts = pack_parts(tensor);
    if (made.parts.isNone()) {
      if (const SubclassCodec* codec = subclass_codec()) {
        made.class_name = codec->note_whole(tensor);
      }
      // The tensor's own detach() makes the alias, without the tape's lock because detach() may be Python code or run
      // ops.
      made.alias = tensor.variable_data();
    }
  }
  pack(tensor, &made);
}

// No op may be recorded here: autograd is in the middle of one.
void SavedTensorHook::call_pack_hook(const at::Tensor& tensor) {
  tape_->observers().tell([&](Observer& observer) { observer.before_save(tensor); });
  if (is_leaf(*tensor.unsafeGetTensorImpl())) {
    leaf_ = std::make_unique<Leaf>(leaf_behind(tensor));
  }
  if (!has_plain_storage(*tensor.unsafeGetTensorImpl())) {
    pack_whole(tensor);
    return;
  }
  pack(tensor, nullptr);
}

C10_ALWAYS_INLINE void SavedTensorHook::pack(const at::Tensor& tensor, const OpaqueForm* made) {
  PendingWork pending;
  {
    const Tape::Lock tape(*tape_);
    attach(*tape, tensor, made);
    pending.take(*tape);
  }
  const bool packs = pending.has_packs();
  const size_t uses = packs ? tensor.use_count() : 0;
  pending.settle(*tape_, [&] { return c10::str("the saving of a tensor of shape ", tensor.sizes()); });
  if (C10_UNLIKELY(packs)) {
    check_argument_was_not_dropped(tensor, uses);
  }
}

C10_ALWAYS_INLINE void SavedTensorHook::unpin_unpacked(LockedTape& tape) {
  if (C10_UNLIKELY(tape_->keeps_for_next_backward())) {
    keep_for_next_backward(tape, value());
  }
  unpin(tape);
}

at::Tensor SavedTensorHook::unpack_at_hand(int graph_task) {
  if (graph_task == -1 || tape_->budget() != nullptr || !tape_->observers().empty()) {
    return {};
  }
  const Tape::Lock tape(*tape_);
  // A hook is not pinned if this backward has not begun with the tape, or has taken the hook out before.
  if (!is_pinned() || !tape->is_active(graph_task)) {
    return {};
  }
  at::Tensor tensor = tensor_at_hand(*tape, value(), meta());
  if (tensor.defined()) {
    unpin_unpacked(*tape);
  }
  return tensor;
}

at::Tensor SavedTensorHook::unpack_pinned() {
  const auto observations = tape_->observers().observe<UnpackObservation>(
      [&](Observer& observer) { return observer.observe_unpack(*value()); });
  at::Tensor tensor = materialize(*tape_, value(), meta());
  if (OffloadForm* form = tape_->offload_form()) {
    form->poll();
    ReadAhead::run(*tape_);
  }
  return tensor;
}

std::optional<std::pair<c10::SafePyObject, c10::SafePyObject>> SavedTensorHook::retrieve_unpack_hook_data() const {
  TORCH_CHECK(false,
              "Compiled autograd cannot run a backward through what an ac2 region has saved: it calls hooks that are "
              "written in Python alone. Call backward outside of torch._dynamo.compiled_autograd, or let torch.compile "
              "compile the function that calls ac2.checkpoint or the wrapped module, which needs no such hooks.");
}

void SavedTensorHook::before_set_data(const at::TensorBase& tensor) {
  // A leaf that a hook has saved has a weak reference beside the one that all strong ones share. The program saves a
  // leaf before it gives it other data, in its own order, so that the count has it, relaxed as it is.
  if (!tensor.defined() || tensor.getIntrusivePtr().weak_use_count() <= 1) {
    return;
  }
  const bool is_whole = !has_plain_storage(*tensor.unsafeGetTensorImpl());
  const bool dies_first = !tensor.requires_grad();
  if (!is_whole && !dies_first) {
    return;
  }
  for_each_live_tape([&](Tape& tape) {
    const Tape::Lock locked(tape);
    for (TapeHook* hook = locked->hooks().first(); hook != nullptr; hook = hook->next()) {
      Leaf* const leaf = static_cast<SavedTensorHook*>(hook)->leaf_.get();
      if (leaf == nullptr || leaf->tensor._unsafe_get_target() != tensor.unsafeGetTensorImpl()) {
        continue;
      }
      leaf->has_other_data = is_whole;
      if (dies_first) {
        leaf->hold(tensor);
      }
    }
  });
}

// The leaf's storage and layout are read without a strong reference, for which Python's lock may be needed. A leaf that
// dies meanwhile has no data. Whether it did is decided by lock() at the end, and not by expired(), which has no order.
at::Tensor SavedTensorHook::new_data_of_leaf() {
  if (leaf_ == nullptr || leaf_->tensor.expired()) {
    return {};
  }
  {
    const Tape::Lock tape(*tape_);
    const c10::TensorImpl& leaf = *leaf_->tensor._unsafe_get_target();
    const bool elsewhere = meta() == nullptr
                               ? leaf_->has_other_data
                               : leaf.unsafe_storage().unsafeGetStorageImpl() != leaf_->storage._unsafe_get_target();
    const bool is_as_saved = meta() == nullptr || meta()->describes(leaf) || value()->changed_outside();
    if (leaf_->tensor.expired() || (!elsewhere && is_as_saved)) {
      return {};
    }
    check_version_of_leaf(leaf, leaf_->version);
  }
  const auto leaf = leaf_->tensor.lock();
  return leaf ? at::Tensor(leaf).variable_data() : at::Tensor();
}

// Under no lock: the leaf may be Python's.
C10_NOINLINE at::Tensor SavedTensorHook::leaf_itself(at::Tensor unpacked) {
  auto leaf = leaf_->tensor.lock();
  if (leaf && leaf->requires_grad()) {
    return unpacked;  // autograd makes a tensor of its own over these bytes
  }
  if (leaf && unpacked.has_storage() && meta() != nullptr && meta()->describes(*leaf)) {
    at::Tensor tensor(std::move(leaf));
    if (tensor.storage().is_alias_of(unpacked.storage())) {
      return tensor;
    }
  }
  return !is_read_again_as_gradient(unpacked) || lend(unpacked) ? unpacked : copy_of(unpacked);
}

bool SavedTensorHook::is_read_again_as_gradient(const at::Tensor& unpacked) {
  // Autograd itself copies a gradient of another layout, and each in a backward that makes a graph.
  if (meta() == nullptr || at::GradMode::is_enabled() || unpacked.use_count() > 1 ||
      !unpacked.is_non_overlapping_and_dense() || unpacked.storage().use_count() == 1 || !is_in_function_of_program()) {
    return false;
  }
  const Tape::Lock tape(*tape_);
  return torch::autograd::get_current_graph_task_keep_graph() || !value()->is_used_only_by(1);
}

bool SavedTensorHook::lend(const at::Tensor& unpacked) {
  const Tape::Lock tape(*tape_);
  if (tape_->budget() != nullptr || !value()->is_held_in_a_storage() ||
      !torch::autograd::get_current_graph_task_keep_graph() ||
      !tape->is_active(torch::autograd::get_current_graph_task_id())) {
    return false;
  }
  tape->lent_tensors().push_back(unpacked);
  return true;
}

// Replayed and copied bytes have no counter to share: no tensor of the program's lies there.
C10_NOINLINE void SavedTensorHook::share_version_counter(const at::Tensor& unpacked) {
  if (meta() == nullptr || !unpacked.defined() || !has_plain_storage(*unpacked.unsafeGetTensorImpl())) {
    return;
  }
  const Tape::Lock tape(*tape_);
  const c10::VariableVersion& counter = value()->versions().counter();
  if (counter.enabled() && value()->watched_storage() == unpacked.storage().unsafeGetStorageImpl()) {
    unpacked.unsafeGetTensorImpl()->set_version_counter(counter);
  }
}

at::Tensor SavedTensorHook::call_unpack_hook() {
  const int graph_task = torch::autograd::get_current_graph_task_id();
  const bool grad_mode = at::GradMode::is_enabled();
  at::Tensor tensor;
  try {
    tensor = unpack(graph_task, grad_mode);
  } catch (const ModifiedInPlace& error) {
    throw_naming_the_tensor(error, *tape_, *this);
  }
  if (C10_UNLIKELY(grad_mode)) {
    share_version_counter(tensor);
  }
  return C10_UNLIKELY(leaf_ != nullptr) ? leaf_itself(std::move(tensor)) : tensor;
}

C10_ALWAYS_INLINE at::Tensor SavedTensorHook::unpack(int graph_task, bool grad_mode) {
  if (at::Tensor tensor = new_data_of_leaf(); C10_UNLIKELY(tensor.defined())) {
    return tensor;
  }
  if (meta() == nullptr) {
    if (at::Tensor tensor = unpack_parts(); tensor.defined()) {
      return tensor;
    }
  }
  at::Tensor tensor = unpack_value(graph_task);
  if (C10_UNLIKELY(grad_mode || makes_graph(graph_task, grad_mode))) {
    note_unpacked(tensor);
  }
  return tensor;
}

C10_ALWAYS_INLINE at::Tensor SavedTensorHook::unpack_value(int graph_task) {
  if (at::Tensor tensor = unpack_at_hand(graph_task); tensor.defined()) {
    return tensor;
  }
  const WithoutPythonLock without;
  // Around the turn: the note asks Python for names, and takes Python's lock for that.
  return with_out_of_memory_note([&] { return unpack_in_turn(graph_task); });
}

C10_NOINLINE void SavedTensorHook::note_unpacked(const at::Tensor& tensor) {
  if (meta() == nullptr || !has_plain_storage(tensor)) {
    return;
  }
  const Tape::Lock tape(*tape_);
  if (!tape->is_closed()) {
    tape->storages().was_unpacked(tensor, value());
  }
}

void SavedTensorHook::take_turn_of_budget(int graph_task) {
  Budget* budget = tape_->budget();
  if (budget == nullptr || graph_task == -1) {
    return;
  }
  {
    const Tape::Lock tape(*tape_);
    if (!tape->budget().takes_turns()) {
      return;
    }
  }
  budget->backward_turn().take(graph_task, tape_.get());
}

at::Tensor SavedTensorHook::unpack_in_turn(int graph_task) {
  take_turn_of_budget(graph_task);  // before the tape's: a thread that waits has nothing that others wait for
  const MutexLock turn(tape_->replay_turn());
  if (graph_task != -1) {
    BackwardRun::enter(*tape_, graph_task);
  }
  {
    const Tape::Lock tape(*tape_);
    pin(*tape);
    tape->observers().tell([&](Observer& observer) { observer.hook_taken(*this, graph_task); });
  }
  try {
    at::Tensor tensor = unpack_pinned();
    const Tape::Lock tape(*tape_);
    tape->budget().took(*value());
    backward_has_unpacked(*tape, graph_task);
    unpin_unpacked(*tape);
    return tensor;
  } catch (...) {
    // Outside a backward there may be no end at which the pin would go.
    const Tape::Lock tape(*tape_);
    unpin(*tape);
    throw;
  }
}

}  // namespace ac2::internal
