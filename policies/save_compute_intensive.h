// Saves the results of matrix products, convolutions and attention, recomputes everything else: most of the memory that
// activations take is in the cheap ops between them.
//
//   ac2::PolicyScope scope(ac2::policies::save_compute_intensive());
//
// Ops: MUST_SAVE for those that compute_intensive_ops() lists, PREFER_RECOMPUTE for the others.
// PyTorch's partitioner (torch/_functorch/partitioners.py) has a list of the same name: all of it is in this one but
// upsample_bilinear2d, which speed() saves.
// Guaranteed: none of the listed ops is replayed. Made in nanoseconds, so a forward() may make it anew each time.
#pragma once

#include <string>
#include <vector>

#include "ac2/policy.h"

namespace ac2::policies {

Policy save_compute_intensive();

// The names, as save_ops takes them.
const std::vector<std::string>& compute_intensive_ops();

}  // namespace ac2::policies
