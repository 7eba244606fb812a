// One Sequential of many modules in segments: checkpoint_sequential with two, with more, and with the number left to
// it.
#pragma once

#include <vector>

#include "examples/variants.h"

namespace example {

std::vector<Variant> sequential_segments(bool small);

}  // namespace example
