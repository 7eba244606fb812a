// An encoder of wrapped blocks with BatchNorm and dropout, as with fairscale's checkpoint_wrapper: the statistics
// change once a step, the masks are drawn once, and inputs may be offloaded.
#pragma once

#include <vector>

#include "examples/variants.h"

namespace example {

std::vector<Variant> encoder_wrapper(bool small);

}  // namespace example
