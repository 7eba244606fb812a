// Policies for ops that the program lists.
//
//   const ac2::Policy policy = ac2::policies::save_ops({"aten::mm", "aten::_softmax"});
//   ...
//   ac2::PolicyScope scope(policy);
//
// A list has names and patterns. "aten::mm" means every overload and "aten::add.Tensor" that one; an overload without a
// name is written "aten::sum.default", as in Python. '*' and '?' make a
// pattern: "aten::*mm*", "aten::add.*". In-place forms, such as "aten::relu_", are ops of their own. Names are those of
// the ops that reach the backend: under autograd aten::linear runs as aten::addmm or aten::mm, and a list that names
// aten::linear draws a warning.
//
// Each function throws c10::Error for a name that no operator has and for a pattern that matches none, and suggests the
// nearest names. A policy is a value: make it once, not once for each step. Regions ask these once per operator.
#pragma once

#include <string>
#include <vector>

#include "ac2/policy.h"

namespace ac2::policies {

// MUST_SAVE for the listed ops, PREFER_RECOMPUTE for all others, as
// torch.utils.checkpoint.create_selective_checkpoint_contexts does with a list of ops.
Policy save_ops(const std::vector<std::string>& ops);

// MUST_RECOMPUTE for the listed ops, PREFER_SAVE for all others. Guaranteed: results of listed ops are not held for
// backward. Their inputs are held if there is nothing nearer to replay them from, so the gain is largest for ops whose
// inputs backward needs anyway.
Policy recompute_ops(const std::vector<std::string>& ops);

// MUST_CPU_OFFLOAD for the listed ops, PREFER_RECOMPUTE for all others. Results leave an accelerator on a stream of
// their own and come back before backward needs them; ac2/offload.h says how, which results stay where they are, and
// what the options are. On the CPU results are saved where they are. offload_ops({"aten::*"}) offloads all results, as
// torchtune's OffloadActivations does.
Policy offload_ops(const std::vector<std::string>& ops);

}  // namespace ac2::policies
