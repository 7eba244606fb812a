#include "ac2/internal/tape/saved_tensor_hook.h"

#include <torch/csrc/autograd/graph_task.h>

#include <optional>

#include "ac2/internal/tape/backward_run.h"
#include "ac2/internal/tape/backward_state.h"
#include "ac2/internal/tape/budget.h"
#include "ac2/internal/tape/offloader.h"
#include "ac2/internal/tape/packing.h"
#include "ac2/internal/tape/replayer.h"
#include "ac2/internal/tape/step_log.h"
#include "ac2/internal/tape/timeline.h"
#include "ac2/internal/tape/verifier.h"

namespace ac2::internal {

SavedTensorHook::~SavedTensorHook() {
  const Tape::Lock lock(*tape_);
  if (value_ == nullptr) {
    return;
  }
  tape_->erase_hook(this);
  if (StepLog* log = tape_->step_log()) {
    log->released(this);
  }
  unpin();
  --value_->hooks;
  if (Timeline* timeline = tape_->timeline()) {
    timeline->unhooked(value_);
  }
  tape_->remove_holder(value_);
  tape_->unuse(value_);
  tape_->unref(value_);
}

void SavedTensorHook::operator delete(SavedTensorHook* hook, std::destroying_delete_t) {
  const std::shared_ptr<Tape> tape = hook->tape_;  // and with it the memory
  tape->destroy_hook(hook);
}

// No op may be dispatched here: it would be recorded, and autograd is in the middle of one.
void SavedTensorHook::call_pack_hook(const at::Tensor& tensor) {
  if (tape_->verifier() != nullptr) {
    check_unchanged(*tape_, tensor);
  }
  c10::SmallVector<Value*, 2> packs;
  {
    const Tape::Lock lock(*tape_);
    value_ = tape_->current(tensor);
    if (!value_->is_opaque()) {
      meta_ = tape_->intern(tensor);
    }
    tape_->ref(value_);
    ++value_->hooks;
    if (Timeline* timeline = tape_->timeline()) {
      timeline->hooked(value_);
      if (!value_->is_opaque()) {
        timeline->note_shape(value_, tensor);
      }
    }
    tape_->use(value_);
    tape_->add_holder(value_);
    tape_->insert_hook(this);
    if (StepLog* log = tape_->step_log()) {
      log->wanted(this, *value_);
    }
    if (tape_->has_pending_packs()) {
      packs = tape_->take_pending_packs();
    }
  }
  if (!packs.empty()) {
    pack_values(*tape_, packs);
  }
  if (Budget* budget = tape_->budget()) {
    budget->make_room(0, [&] { return c10::str("the saving of a tensor of shape ", tensor.sizes()); });
  }
}

at::Tensor SavedTensorHook::unpack_at_hand(int graph_task) {
  if (graph_task == -1 || tape_->budget() != nullptr || tape_->is_watched()) {
    return {};
  }
  const Tape::Lock lock(*tape_);
  // Not pinned: this backward has not begun with the tape, or has taken this one out before.
  if (!pinned_ || !tape_->backward().is_active(graph_task)) {
    return {};
  }
  at::Tensor tensor = tensor_at_hand(*tape_, value_, meta_);
  if (tensor.defined()) {
    unpin();
  }
  return tensor;
}

at::Tensor SavedTensorHook::call_unpack_hook() {
  const int graph_task = torch::autograd::get_current_graph_task_id();
  if (at::Tensor tensor = unpack_at_hand(graph_task); tensor.defined()) {
    return tensor;
  }
  const BackwardState::Turn turn(tape_->backward());
  if (graph_task != -1) {
    BackwardRun::enter(*tape_, graph_task);
  }
  {
    const Tape::Lock lock(*tape_);
    pin();
    if (StepLog* log = tape_->step_log()) {
      log->taken(this, graph_task);
    }
  }
  try {
    std::optional<TimedUnpack> timed;
    if (tape_->timeline() != nullptr) {
      timed.emplace(*tape_, value_);
    }
    at::Tensor tensor = materialize(*tape_, value_, meta_);
    if (Offloader* offloader = tape_->offloader()) {
      offloader->poll();
      offloader->run_ahead(*tape_);
    }
    const Tape::Lock lock(*tape_);
    unpin();
    return tensor;
  } catch (...) {
    // Nobody may come to end this backward, if there is none.
    const Tape::Lock lock(*tape_);
    unpin();
    throw;
  }
}

void SavedTensorHook::move_to(Value* value) {
  TORCH_INTERNAL_ASSERT(!pinned_);
  tape_->ref(value);
  Value* left = std::exchange(value_, value);
  --left->hooks;
  ++value->hooks;
  if (StepLog* log = tape_->step_log()) {
    log->released(this);
    log->wanted(this, *value);
  }
  if (Timeline* timeline = tape_->timeline()) {
    timeline->unhooked(left);
    timeline->hooked(value);
  }
  // In this order: the two may share a storage, which is to be counted once.
  tape_->remove_holder(left);
  tape_->unuse(left);
  tape_->use(value);
  tape_->add_holder(value);
  tape_->unref(left);
}

void SavedTensorHook::pin() {
  if (!pinned_) {
    pinned_ = true;
    tape_->pin(value_);
  }
}

void SavedTensorHook::unpin() {
  if (pinned_) {
    pinned_ = false;
    tape_->unpin(value_);
  }
}

std::unique_ptr<SavedTensorHook> Tape::make_hook(std::shared_ptr<Tape> self) {
  return std::unique_ptr<SavedTensorHook>(hook_pool_->make(std::move(self)));
}

void Tape::destroy_hook(SavedTensorHook* hook) {
  hook_pool_->destroy(hook);
}

void Tape::insert_hook(SavedTensorHook* hook) {
  hook->next_ = hooks_;
  if (hooks_ != nullptr) {
    hooks_->previous_ = hook;
  }
  hooks_ = hook;
}

void Tape::erase_hook(SavedTensorHook* hook) {
  if (owned_offloader_) {
    owned_offloader_->read_ahead().forget(hook);
  }
  (hook->previous_ != nullptr ? hook->previous_->next_ : hooks_) = hook->next_;
  if (hook->next_ != nullptr) {
    hook->next_->previous_ = hook->previous_;
  }
}

}  // namespace ac2::internal
