// Writes of which no version counter is told (OpFacts::written_unseen): what autograd has saved of the storage follows
// them, in plain PyTorch because it is that storage.
#pragma once

#include <ATen/core/Tensor.h>

#include "ac2/internal/tape/locked_tape.h"

namespace ac2::internal {

// Whether `old`, which is current, follows such a write as it is: a tensor from outside, held as its storage, which
// none but hooks can ever want.
bool follows_unseen_writes(const Value& old);

// Before such a write to the storage of `tensor`, of which any other value `old` is current no longer: hooks on it go
// over to a new value, which is the storage. Those of a backward under way keep what they have pinned.
void follow_unseen_write(LockedTape& tape, Value* old, const at::Tensor& tensor);

}  // namespace ac2::internal
