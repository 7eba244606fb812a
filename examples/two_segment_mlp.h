// A perceptron in two segments, each with a flag of its own that says whether it is checkpointed: OneFlow's
// `activation_checkpointing`.
#pragma once

#include <vector>

#include "examples/variants.h"

namespace example {

std::vector<Variant> two_segment_mlp(bool small);

}  // namespace example
