// Saves nothing: backward replays every op of the region that it needs. The least memory, the most compute.
//
//   ac2::PolicyScope scope(ac2::policies::recompute_all());
//
// Ops: PREFER_RECOMPUTE for all.
// Guaranteed: nothing a region computes is held for backward, but what an outer policy, an inner one or a tag saves.
// Costs nothing per op.
#pragma once

#include "ac2/policy.h"

namespace ac2::policies {

Policy recompute_all();

}  // namespace ac2::policies
