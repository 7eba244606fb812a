// Writes of which no version counter is told (OpFacts::written_unseen): what autograd has saved of the storage follows
// them, in plain PyTorch because it is that storage.
#pragma once

#include <ATen/core/Tensor.h>

#include "ac2/internal/tape.h"

namespace ac2::internal {

// Before such a write to the storage of `tensor`, of which `old` is current no longer: unless `old` is saved as that
// storage, hooks on it go over to a new value that is. Those of a backward under way keep what they have pinned. Needs
// the tape's lock.
void follow_unseen_write(Tape& tape, Value* old, const at::Tensor& tensor);

}  // namespace ac2::internal
