// A policy with other decisions for single ops.
//
//   const ac2::Policy policy = ac2::policies::per_op_override(
//       ac2::policies::save_compute_intensive(),
//       {{"aten::gelu", ac2::CheckpointPolicy::MUST_SAVE}, {"aten::bmm", ac2::CheckpointPolicy::MUST_RECOMPUTE}});
//
// Ops: the decision of the first entry that names the op, even against a MUST of the policy; else the policy's. Names
// and patterns as in policies/save_ops.h; of "aten::add" and "aten::add.Tensor" put the narrower one first. A decision
// may be a SaveWithHooks. Named tensors: what the policy says of the name, if anything, counts before the entry for the
// op. Guaranteed: the policy is asked of every op all the same, so that one that counts or traces sees all. Costs what
// the policy costs, and one question per operator and region. Throws c10::Error for a name that no operator has, and
// suggests the nearest.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ac2/policy.h"

namespace ac2::policies {

Policy per_op_override(Policy policy, const std::vector<std::pair<std::string, PolicyDecision>>& overrides);

}  // namespace ac2::policies
