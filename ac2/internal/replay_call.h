// Calling a recorded op again, with the dispatch state it had and below everything that it was below.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ac2/internal/graph.h"

namespace ac2::internal {

// `inputs` stand for node.inputs, one for one. Returns all result tensors in order, those in lists included. Throws
// what the op throws.
std::vector<at::Tensor> call_again(const Node& node, std::vector<at::Tensor> inputs);

}  // namespace ac2::internal
