#include "ac2/internal/replay/saved_tensor_hook.h"

#include <ATen/core/grad_mode.h>
#include <c10/macros/Macros.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/graph_task.h>

#include <optional>
#include <utility>

#include "ac2/internal/libtorch/graph_making.h"
#include "ac2/internal/libtorch/out_of_memory.h"
#include "ac2/internal/libtorch/python_lock.h"
#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/locks/mutex.h"
#include "ac2/internal/replay/backward_run.h"
#include "ac2/internal/replay/given_to_autograd.h"
#include "ac2/internal/replay/kept_for_next.h"
#include "ac2/internal/replay/pending_work.h"
#include "ac2/internal/replay/read_ahead.h"
#include "ac2/internal/replay/replayed_at_once.h"
#include "ac2/internal/replay/replayer.h"
#include "ac2/internal/replay/saved_leaf.h"
#include "ac2/internal/replay/saved_parts.h"
#include "ac2/internal/replay/whose_write.h"
#include "ac2/internal/tape/live_tapes.h"
#include "ac2/internal/tape/outside_writes.h"

namespace ac2::internal {

namespace {

// An argument of the op that autograd is about to run, of which the pack function has dropped the last reference but
// autograd's own. The op would read it through the caller's reference.
C10_NOINLINE void check_argument_was_not_dropped(const at::Tensor& tensor, size_t uses_before) {
  TORCH_CHECK(uses_before == 1 || tensor.use_count() > 1,
              "A pack function dropped the program's last reference to a tensor of shape ", tensor.sizes(),
              ", which an op that is about to run takes as its argument. Drop it after the op, or in a policy.");
}

}  // namespace

SavedTensorHook::SavedTensorHook(std::shared_ptr<Tape> tape) : tape_(std::move(tape)) {}

SavedTensorHook::~SavedTensorHook() = default;

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

C10_NOINLINE void SavedTensorHook::pack_whole(const at::Tensor& tensor) {
  const OpaqueForm made = opaque_form_of(tensor, [&] { return make(tape_); });
  pack(tensor, &made);
}

at::Tensor SavedTensorHook::unpack_whole() {
  c10::IValue parts;
  {
    const Tape::Lock tape(*tape_);
    check_opaque_unchanged(*value());
    parts = value()->opaque_form()->parts;
  }
  return unpack_parts(parts);
}

// No op may be recorded here: autograd is in the middle of one.
void SavedTensorHook::call_pack_hook(const at::Tensor& tensor) {
  tape_->observers().tell([&](Observer& observer) { observer.before_save(tensor); });
  if (is_leaf(*tensor.unsafeGetTensorImpl())) {
    leaf_ = std::make_unique<SavedLeaf>(leaf_behind(tensor));
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
  if (has_plain_storage(*tensor.unsafeGetTensorImpl()) && tensor.requires_grad()) {
    return;  // the storage tells, and the leaf outlives the hooks
  }
  for_each_live_tape([&](Tape& tape) {
    const Tape::Lock locked(tape);
    for (TapeHook* hook = locked->hooks().first(); hook != nullptr; hook = hook->next()) {
      if (SavedLeaf* const leaf = static_cast<SavedTensorHook*>(hook)->leaf_.get()) {
        leaf->before_set_data(tensor);
      }
    }
  });
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
    share_version_counter(*tape_, *this, tensor);
  }
  return C10_UNLIKELY(leaf_ != nullptr) ? leaf_to_give(*tape_, *this, *leaf_, std::move(tensor)) : tensor;
}

C10_ALWAYS_INLINE at::Tensor SavedTensorHook::unpack(int graph_task, bool grad_mode) {
  if (C10_UNLIKELY(leaf_ != nullptr)) {
    if (at::Tensor tensor = leaf_->new_data(*tape_, *this); tensor.defined()) {
      return tensor;
    }
  }
  if (meta() == nullptr) {
    if (at::Tensor tensor = unpack_whole(); tensor.defined()) {
      return tensor;
    }
  }
  at::Tensor tensor = unpack_value(graph_task);
  if (C10_UNLIKELY(grad_mode || makes_graph(graph_task, grad_mode))) {
    note_unpacked(*tape_, *this, tensor);
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
