// Saves the results of the listed ops, recomputes everything else.
//
//   const ac2::Policy policy = ac2::policies::save_ops({"aten::mm", "aten::_softmax"});
//   ...
//   ac2::PolicyScope scope(policy);
//
// torch.utils.checkpoint.create_selective_checkpoint_contexts does the same with a list of ops.
// Ops: MUST_SAVE for the listed ones, PREFER_RECOMPUTE for the others. "aten::mm" means every overload,
// "aten::add.Tensor" that one; '*' and '?' make a pattern, "aten::*mm*", "aten::add.*"; in-place forms ("aten::relu_")
// are ops of their own. Names are those of the ops that reach the backend: under autograd aten::linear runs as
// aten::addmm or aten::mm, and naming it draws a warning. Throws c10::Error for a name that no operator has, or a
// pattern that matches none, and suggests the nearest. A policy is a value: make it once, not once a step. Regions ask
// it once per operator.
#pragma once

#include <string>
#include <vector>

#include "ac2/policy.h"

namespace ac2::policies {

Policy save_ops(const std::vector<std::string>& ops);

}  // namespace ac2::policies
