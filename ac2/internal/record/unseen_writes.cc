#include "ac2/internal/record/unseen_writes.h"

#include <memory>

#include "ac2/internal/tape/saved_tensor_hook.h"

namespace ac2::internal {

namespace {

// The write moves no counter, so what would tell of a change before it does so after it.
void watch_as(const Value& old, Value* next) {
  next->noted = old.noted;
  next->version = old.version;
  next->noted_version = old.noted_version;
  next->some_unwatched = old.some_unwatched;
  if (old.other_versions) {
    next->other_versions = std::make_unique<c10::SmallVector<NotedVersion, 2>>(*old.other_versions);
  }
}

}  // namespace

bool follows_unseen_writes(const Value& old) {
  const int32_t refs_of_map = 1;
  return old.producer == nullptr && old.held && !old.private_bytes && !old.has_hooks() &&
         old.refs == old.hooks + refs_of_map;
}

void follow_unseen_write(Tape& tape, Value* old, const at::Tensor& tensor) {
  if (old->hooks == 0) {
    return;
  }
  Value* next = tape.add_written(tensor);
  watch_as(*old, next);
  for (SavedTensorHook* hook = tape.first_hook(); hook != nullptr && old->hooks > 0; hook = hook->next()) {
    if (hook->value() == old && !hook->is_pinned()) {
      hook->move_to(next);
    }
  }
}

}  // namespace ac2::internal
