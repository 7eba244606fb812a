// Policies that decide alike for every op.
//
//   ac2::PolicyScope outer(ac2::policies::recompute_all());
//   ...
//   ac2::PolicyScope expensive_part(ac2::policies::must_save_all());
//
// They cost nothing per op.
#pragma once

#include "ac2/policy.h"

namespace ac2::policies {

// PREFER_RECOMPUTE for all ops: backward replays every op of the region that it needs. This takes the least memory and
// the most time. Guaranteed: of what a region computes, only results that another scope's policy or a tag saves are
// held for backward.
Policy recompute_all();

// MUST_SAVE for all ops. Everything that backward needs is saved, as plain autograd does it, and nothing is replayed.
// As a MUST it replaces every PREFER_*, in whatever order the scopes are nested, and conflicts with MUST_RECOMPUTE.
// Guaranteed: no byte is held that plain autograd would not hold.
Policy must_save_all();

}  // namespace ac2::policies
