// Saves what either of two policies saves: jax.checkpoint_policies.save_from_both_policies.
//
//   const ac2::Policy policy = ac2::policies::save_from_both_policies(
//       ac2::policies::dots_with_no_batch_dims_saveable(), ac2::policies::save_only_these_names({"attn_out"}));
//
// Ops: where both save, or neither does, a MUST decision counts before a PREFER_*, and then the first policy before the
// second. Where one saves, its decision counts, even against the other's MUST_RECOMPUTE.
// Names: the same, of what the policies say of the name; one that says nothing of it says what it said of the op that
// computed the tensor. If that is not known (a callable is not asked twice), a name only ever adds to what is saved.
// Costs what the dearer of the two costs. Both are asked of every op.
#pragma once

#include "ac2/policy.h"

namespace ac2::policies {

Policy save_from_both_policies(Policy first, Policy second);

}  // namespace ac2::policies
