// The first policy that insists decides: exceptions first, the general rule last.
//
//   const ac2::Policy policy = ac2::policies::first_of({
//       ac2::policies::save_only_these_names({"attn_out"}),
//       ac2::policies::recompute_ops({"aten::gelu"}),
//       ac2::policies::save_compute_intensive(),
//   });
//
// Ops: a policy's opinion is a MUST decision or SaveWithHooks; the first of them counts, and there are no conflicts. A
// PREFER_* is what a policy that has no opinion leaves to others: where all prefer, the last one's preference counts.
// It is what nested scopes would decide, the first the outermost, but that the first of two MUSTs wins. Names: the
// same, of what the policies say of the name; one that says nothing of it says what it said of the op that computed the
// tensor. Guaranteed: every policy is asked of every op, in order, so that those that count or trace see all. Costs
// what its policies cost: nothing per op if all are constant, one question per operator and region if none has to see
// the call. Throws c10::Error for an empty list.
#pragma once

#include <vector>

#include "ac2/policy.h"

namespace ac2::policies {

Policy first_of(std::vector<Policy> policies);

}  // namespace ac2::policies
