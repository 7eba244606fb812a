#include "ac2/internal/record/unseen_writes.h"

namespace ac2::internal {

bool follows_unseen_writes(const Value& old) {
  return old.producer() == nullptr && old.is_held_by_reference() && old.packed_form() == nullptr &&
         old.is_known_to_index_and_hooks_alone();
}

void follow_unseen_write(LockedTape& tape, Value* old, const at::Tensor& tensor) {
  if (!old->has_hooks()) {
    return;
  }
  Value* next = tape.storages().add_written(tensor);
  // The write moves no counter, so what would tell of a change before it does so after it.
  next->watch_versions_as(*old);
  move_free_hooks(tape, old, next);
}

void move_free_hooks(LockedTape& tape, Value* old, Value* next) {
  for (TapeHook* hook = tape.hooks().first(); hook != nullptr && old->has_hooks(); hook = hook->next()) {
    if (hook->value() == old && !hook->is_pinned()) {
      hook->move_to(tape, next);
    }
  }
}

}  // namespace ac2::internal
