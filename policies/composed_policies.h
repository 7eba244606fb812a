// Policies that are made of other policies.
//
//   const ac2::Policy policy = ac2::policies::first_of({
//       ac2::policies::save_only_these_names({"attn_out"}),
//       ac2::policies::recompute_ops({"aten::gelu"}),
//       ac2::policies::save_compute_intensive(),
//   });
//
// Guaranteed: every policy is asked about every op, in order, so that policies that count or trace see all of them. A
// composed policy costs what its policies cost: nothing per op if all are constant, and one question per operator and
// region if none has to see the call.
//
// Names (ac2/names.h): the same rules hold for what the policies say of a name. A policy that says nothing of the name
// says what it said of the op that computed the tensor.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ac2/policy.h"

namespace ac2::policies {

// The first policy that insists decides: exceptions first, the general rule last. A MUST decision or SaveWithHooks
// insists; the first of them counts, and there are no conflicts. If all policies merely prefer, the last one's
// preference counts. Nested scopes, with the first policy as the outermost, would decide the same, except that there
// two different MUSTs are an error. Throws c10::Error for an empty list.
Policy first_of(std::vector<Policy> policies);

// Saves what either of two policies saves, as jax.checkpoint_policies.save_from_both_policies does.
//
//   const ac2::Policy policy = ac2::policies::save_from_both_policies(
//       ac2::policies::dots_with_no_batch_dims_saveable(), ac2::policies::save_only_these_names({"attn_out"}));
//
// If only one policy saves, its decision counts, even against the other's MUST_RECOMPUTE. If both save, or neither
// does, a MUST decision counts before a PREFER_*, and then the first policy before the second. A callable is not asked
// twice, so what it would say of a named tensor's op is not known; for such a tensor a name can only add to what is
// saved.
Policy save_from_both_policies(Policy first, Policy second);

// A policy with other decisions for single ops.
//
//   const ac2::Policy policy = ac2::policies::per_op_override(
//       ac2::policies::save_compute_intensive(),
//       {{"aten::gelu", ac2::CheckpointPolicy::MUST_SAVE}, {"aten::bmm", ac2::CheckpointPolicy::MUST_RECOMPUTE}});
//
// The first entry that names an op decides for it, even against a MUST of the policy; for all other ops the policy
// decides. Names and patterns are as in policies/listed_ops.h; of "aten::add" and "aten::add.Tensor" put the narrower
// one first. A decision may be a SaveWithHooks. If the policy decides for a named tensor, that counts before the entry
// for the tensor's op. Throws c10::Error for a name that no operator has, and suggests the nearest.
Policy per_op_override(Policy policy, const std::vector<std::pair<std::string, PolicyDecision>>& overrides);

}  // namespace ac2::policies
