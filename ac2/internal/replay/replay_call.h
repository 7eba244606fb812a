// Calls a recorded op again, in the dispatch state of its first call. So the op meets the same dispatch keys as then.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "ac2/internal/graph/node.h"

namespace ac2::internal {

using ReplayTensors = c10::SmallVector<at::Tensor, 4>;

// `inputs` stand for node.inputs, one for one, and are used up. Returns all result tensors in order, those in lists
// included. Throws what the op throws.
ReplayTensors call_again(const Node& node, ReplayTensors& inputs);

// Inside an op that is being replayed on this thread.
bool is_replaying();

}  // namespace ac2::internal
