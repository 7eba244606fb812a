// Ops that turn numbers into indices, masks or counts.
//
//   if (has_discrete_results(call.facts, call.arguments, results)) …   // argmax, topk, x > 0, max_pool2d
//
// Where such an op may be given other numbers when it runs again, it must not run again. From numbers that are a little
// different the op may choose other indices, or another number of them, and results that were computed from the first
// ones do not fit to the second ones. A kernel that is given indices outside of a table writes outside of it. There are
// two such cases:
//
//   - Values may be held in an inexact form (PolicyInstance::is_inexact, ScopeOptions::forms). All such ops are saved.
//   - An op that would be replayed before it may compute other bits each time (OpFacts::varies, Node::may_vary). The op
//     is saved unless a policy says MUST_RECOMPUTE. Rejected: to save the results of all such ops. The indices of
//     ResNet-50's max_pool2d alone are 1.6 MB an image, and kernels that do not vary choose the same again. Of
//     operators of other libraries nobody knows whether they vary. Those are saved that choose as a router does
//     (chooses_mostly()); a kernel that returns a seed or counts beside its numbers is computed again.
//
// The dtypes tell. Bytes are taken for numbers and not for a choice: libraries keep workspace in them.
//
// Threads: any.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include "ac2/internal/operators/op_facts.h"

namespace ac2::internal {

// bool, and integers but those of a byte or of 64 bits without a sign (states of generators).
bool is_discrete(c10::ScalarType type);

// Whether a result, or an argument that the op writes, is discrete, and an argument is not. False for ops of which the
// table knows that the discrete results do not depend on numbers (the mask of a dropout).
bool has_discrete_results(const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments,
                          c10::ArrayRef<c10::IValue> results);

// Whether at least as many elements of the results are indices as numbers, and more than one is. Masks do not count:
// kernels return them beside what they drop.
bool chooses_mostly(c10::ArrayRef<c10::IValue> results);

}  // namespace ac2::internal
