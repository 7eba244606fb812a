// All or nothing, under the names of jax.checkpoint_policies. JAX's True is MUST_SAVE and its False PREFER_RECOMPUTE,
// as bool is everywhere in ac2.
//
//   ac2::PolicyScope scope(ac2::policies::nothing_saveable());
//
// Ops: everything_saveable() is must_save_all(), nothing_saveable() is recompute_all().
// Guaranteed: as those. Cost nothing per op.
#pragma once

#include "ac2/policy.h"

namespace ac2::policies {

Policy everything_saveable();
Policy nothing_saveable();

}  // namespace ac2::policies
