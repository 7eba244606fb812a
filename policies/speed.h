// Strategy "speed": saves what is slow, recomputes what costs little more than the reading and writing of memory.
//
//   ac2::PolicyScope scope(ac2::policies::speed());
//
// Ops: MUST_SAVE for matrix products, convolutions and attention, as save_compute_intensive(), and besides for
// decompositions and solvers (linalg), Fourier transforms, sorting and searching, distances, resampling with
// interpolation, and CTC loss: all of them do more than a few operations for each element that they read.
// PREFER_RECOMPUTE for the others. torch.utils.checkpoint's examples and functorch's partitioner have the products,
// convolutions, attention and upsample_bilinear2d in their lists of compute-intensive ops. Guaranteed: none of
// slow_ops() is replayed. Regions ask once per operator. Made in nanoseconds.
#pragma once

#include <string>
#include <vector>

#include "ac2/policy.h"

namespace ac2::policies {

Policy speed();

// The names, as save_ops takes them: compute_intensive_ops() and the rest.
const std::vector<std::string>& slow_ops();

}  // namespace ac2::policies
