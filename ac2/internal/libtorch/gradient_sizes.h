// How large the gradients are that autograd computes on this thread now.
//
//   bytes_of_largest_gradient()   // in a kernel of LogSoftmaxBackward: those of the logits
//
// Threads: any; each has its own answer.
#pragma once

#include <cstdint>

namespace ac2::internal {

// The largest of the gradients that the node under way takes and makes. 0 if none is under way, or if shapes are not
// known.
int64_t bytes_of_largest_gradient();

}  // namespace ac2::internal
