// Recomputes the listed ops, saves whatever else backward needs.
//
//   const ac2::Policy policy = ac2::policies::recompute_ops({"aten::gelu", "aten::native_layer_norm"});
//   ...
//   ac2::PolicyScope scope(policy);
//
// Ops: MUST_RECOMPUTE for the listed ones, PREFER_SAVE for the others. Names as in policies/save_ops.h.
// Guaranteed: results of listed ops are not held for backward. Inputs of listed ops are, where nothing nearer exists to
// replay them from: the gain is largest for ops whose inputs backward needs anyway.
// Throws c10::Error for a name that no operator has, and suggests the nearest.
// A policy is a value: make it once, not once a step. Regions ask it once per operator.
#pragma once

#include <string>
#include <vector>

#include "ac2/policy.h"

namespace ac2::policies {

Policy recompute_ops(const std::vector<std::string>& ops);

}  // namespace ac2::policies
