// Saves whatever backward needs, as plain autograd does: nothing is replayed.
//
//   ac2::PolicyScope outer(ac2::policies::recompute_all());
//   ...
//   ac2::PolicyScope expensive_part(ac2::policies::must_save_all());
//
// Ops: MUST_SAVE for all. As a MUST it overrules every PREFER_*, in whatever order the scopes are nested, and conflicts
// with MUST_RECOMPUTE.
// Guaranteed: holds no byte that plain autograd would not hold. Costs nothing per op.
#pragma once

#include "ac2/policy.h"

namespace ac2::policies {

Policy must_save_all();

}  // namespace ac2::policies
