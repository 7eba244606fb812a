#include "ac2/internal/record/part_writes.h"

#include <c10/util/SmallVector.h>

namespace ac2::internal {

namespace {

using Hooks = c10::SmallVector<TapeHook*, 8>;

// Only the youngest hooks of a long region are looked at: a write must not cost more the more hooks there are.
constexpr int kMostHooks = 1024;

// A budget and some observers know values by their producers, and backward kernels may write to clobbered values.
bool may_hand_on(LockedTape& tape, const Value& old) {
  return old.has_hooks() && !old.is_pinned() && old.packed_form() == nullptr && !is_clobbered(old) &&
         tape.budget().get() == nullptr &&
         !tape.observers().any([](const Observer& observer) { return observer.tells_values_apart(); });
}

// All hooks on `old`; or none, if one of them may see what is written or is not among the youngest.
Hooks hooks_beside(LockedTape& tape, const Value& old, const TensorMeta& written) {
  Hooks hooks;
  int looked_at = 0;
  for (TapeHook* hook = tape.hooks().first(); hook != nullptr; hook = hook->next()) {
    if (++looked_at > kMostHooks) {
      return {};
    }
    if (hook->value() != &old) {
      continue;
    }
    if (hook->meta()->may_overlap(written)) {
      return {};
    }
    hooks.push_back(hook);
    if (static_cast<int32_t>(hooks.size()) == old.hooks()) {
      return hooks;
    }
  }
  return {};
}

void hand_on(LockedTape& tape, const Hooks& hooks, const Value& old, Value* next, const at::Tensor& tensor) {
  next->watch_versions_after_write(old, tensor);
  for (TapeHook* hook : hooks) {
    hook->move_to(tape, next);
  }
}

}  // namespace

bool hand_on_hooks(LockedTape& tape, Value* old, const at::Tensor& tensor, const TensorMeta& written) {
  if (!old->is_held_for_hooks_alone() || !may_hand_on(tape, *old)) {
    return false;
  }
  const Hooks hooks = hooks_beside(tape, *old, written);
  if (hooks.empty()) {
    return false;
  }
  tape.storages().forget(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
  hand_on(tape, hooks, *old, tape.storages().add_written(tensor), tensor);
  return true;
}

void hand_on_recomputed(LockedTape& tape, Value* old, Value* next, const at::Tensor& tensor,
                        const TensorMeta& written) {
  if (!old->counts_on_replay() || !next->counts_on_replay() || next->packed_form() != nullptr ||
      !may_hand_on(tape, *old)) {
    return;
  }
  if (const Hooks hooks = hooks_beside(tape, *old, written); !hooks.empty()) {
    hand_on(tape, hooks, *old, next, tensor);
  }
}

}  // namespace ac2::internal
