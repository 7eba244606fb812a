// Writes of which no version counter is told (OpFacts::written_unseen). In plain PyTorch a tensor that autograd has
// saved before such a write has the new contents afterwards, because it is the storage that was written. Hooks follow
// the write here too.
#pragma once

#include <ATen/core/Tensor.h>

#include "ac2/internal/tape/locked_tape.h"

namespace ac2::internal {

// Whether `old`, the value that the storage holds now, follows such a write as it is. So does a tensor from outside
// that is held as its storage and that only hooks refer to.
bool follows_unseen_writes(const Value& old);

// Called before such a write to the storage of `tensor`, for any other value `old` that the storage held until now: the
// hooks on `old` go over to a new value, which is the storage. Hooks of a backward under way keep what they have
// pinned.
void follow_unseen_write(LockedTape& tape, Value* old, const at::Tensor& tensor);

// All hooks on `old` go over to `next`, but for those of a backward under way.
void move_free_hooks(LockedTape& tape, Value* old, Value* next);

}  // namespace ac2::internal
