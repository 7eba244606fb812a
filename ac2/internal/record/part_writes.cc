#include "ac2/internal/record/part_writes.h"

#include <c10/util/SmallVector.h>

#include <memory>
#include <utility>

#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/internal/tape/saved_tensor_hook.h"

namespace ac2::internal {

namespace {

using Hooks = c10::SmallVector<SavedTensorHook*, 8>;

// Of a long region, only the youngest hooks are looked at: a write must not cost more the more there are.
constexpr int kMostHooks = 1024;

// A budget and a step's log know values by what made them, and backward kernels may write to what is clobbered.
bool may_hand_on(Tape& tape, const Value& old) {
  return old.hooks > 0 && old.pins == 0 && !old.has_hooks() && !is_clobbered(old) && tape.budget() == nullptr &&
         tape.step_log() == nullptr;
}

// All of them, or none if one may see what is written or is not among the youngest.
Hooks hooks_beside(Tape& tape, const Value& old, const TensorMeta& written) {
  Hooks hooks;
  int looked_at = 0;
  for (SavedTensorHook* hook = tape.first_hook(); hook != nullptr; hook = hook->next()) {
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
    if (static_cast<int32_t>(hooks.size()) == old.hooks) {
      return hooks;
    }
  }
  return {};
}

// Those by which a change of what the hooks see would be noticed. The write itself counts up the counter of `tensor`,
// but only after the op.
void watch_counters_of(const Value& old, const at::Tensor& tensor, Value* next) {
  next->some_unwatched = old.some_unwatched;
  next->other_versions = std::make_unique<c10::SmallVector<NotedVersion, 2>>();
  const auto watch = [&](NotedVersion seen) {
    seen.noted &= !same_counter(seen.counter, tensor.unsafeGetTensorImpl()->version_counter());
    next->other_versions->push_back(std::move(seen));
  };
  if (old.version.enabled()) {
    NotedVersion first(old.version);
    first.version = old.noted_version;
    first.noted = true;
    watch(std::move(first));
  }
  if (old.other_versions) {
    for (const NotedVersion& other : *old.other_versions) {
      watch(other);
    }
  }
}

void hand_on(const Hooks& hooks, const Value& old, Value* next, const at::Tensor& tensor) {
  watch_counters_of(old, tensor, next);
  for (SavedTensorHook* hook : hooks) {
    hook->move_to(next);
  }
}

}  // namespace

bool hand_on_hooks(Tape& tape, Value* old, const at::Tensor& tensor, const TensorMeta& written) {
  const bool held_for_hooks_alone = old->saved && old->held && !old->private_bytes && old->uses == old->hooks;
  if (!held_for_hooks_alone || !may_hand_on(tape, *old)) {
    return false;
  }
  const Hooks hooks = hooks_beside(tape, *old, written);
  if (hooks.empty()) {
    return false;
  }
  tape.forget_current(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
  hand_on(hooks, *old, tape.add_written(tensor), tensor);
  return true;
}

void hand_on_recomputed(Tape& tape, Value* old, Value* next, const at::Tensor& tensor, const TensorMeta& written) {
  if (old->saved || next->saved || next->has_hooks() || !may_hand_on(tape, *old)) {
    return;
  }
  if (const Hooks hooks = hooks_beside(tape, *old, written); !hooks.empty()) {
    hand_on(hooks, *old, next, tensor);
  }
}

}  // namespace ac2::internal
