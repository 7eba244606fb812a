// Backward's side: bringing a value back from the nearest ones that exist.
#pragma once

#include <ATen/core/Tensor.h>

#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

// The tensor that `meta` (null for one without plain storage) describes over a pinned value, replaying as few ops as
// will do. The caller has the tape's turn (Tape::replay_turn()) and not its lock. Throws what a replayed op or an
// unpack function throws, and if a value that is needed was changed from outside.
at::Tensor materialize(Tape& tape, Value* value, const TensorMeta* meta);

// The same for a pinned value that is there and may be handed out as it is, else undefined. Needs no turn: replays on
// other threads leave alone the values that this one has pinned. Throws if the value was changed from outside.
at::Tensor tensor_at_hand(LockedTape& tape, Value* value, const TensorMeta* meta);

}  // namespace ac2::internal
