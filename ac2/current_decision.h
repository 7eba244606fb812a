// Asks the policies in force, from the program's own code, how they would decide for an op.
//
//   const auto decision = ac2::current_decision("aten::_softmax");
//   if (decision && !decision->saves()) ...   // inside a region that recomputes it
//
// is_checkpoint_enabled() and is_recomputing() of ac2/scope.h answer related questions. Null means that nothing is
// recorded here: outside all regions, in DisableCheckpointing, in the functions of a SaveWithHooks, and in a backward
// that runs inside a region.
//
// An answer is what the policies say of such a call. An answer does not cover the calls that policies are not asked
// about: views, and ops that return no tensor. A tag or a name may still decide otherwise for one tensor.
//
// Threads: the answer is about the regions of the calling thread.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <optional>
#include <string_view>

#include "ac2/policy.h"

namespace ac2 {

// For policies that are constant or look at the operator alone. `op` is "aten::add.Tensor", or "aten::mm" for the
// overload without a name. If an operator has no such overload, as "aten::add" has none, the policies must decide alike
// for all overloads that compute a new tensor. Throws c10::Error
//   - for an unknown op, with the nearest names, inside or outside a region;
//   - for overloads that are decided differently;
//   - if a policy is a callable, which has to see the call;
//   - for "Conflicting policies".
std::optional<PolicyDecision> current_decision(std::string_view op);
std::optional<PolicyDecision> current_decision(std::nullptr_t op) = delete;

// For all policies. Callables are called as for an op of the region, with the index that the next op will have; a
// callable that counts its calls counts this one too. Throws c10::Error unless there is one input for each argument of
// the op's schema and one output for each of its returns.
std::optional<PolicyDecision> current_decision(std::string_view op, c10::ArrayRef<c10::IValue> inputs,
                                               c10::ArrayRef<c10::IValue> outputs);

}  // namespace ac2
