// What the policies in force would decide for an op, asked from the program's own code.
//
//   const auto decision = ac2::current_decision("aten::_softmax");
//   if (decision && !decision->saves()) ...   // inside a region that recomputes it
//
// With is_checkpoint_enabled(), is_recomputing() and DisableCheckpointing of ac2/scope.h these are the ways to ask
// where one is. Null means that nothing is recorded here: outside all regions, in DisableCheckpointing, in the
// functions of a SaveWithHooks, and in a backward that runs inside a region.
//
// An answer is what the policies say of such a call. Views and ops that return no tensor are not decided on at all, and
// a tag or a name may decide otherwise for one tensor.
//
// Threads: about the regions of the calling thread.
#pragma once

#include <ATen/core/ivalue.h>

#include <optional>
#include <string_view>

#include "ac2/policy.h"

namespace ac2 {

// For policies that are constant or look at the operator alone. `op` is "aten::add.Tensor", or "aten::mm" for the
// overload without a name; where there is none, as for "aten::add", all overloads that compute a new tensor must be
// decided alike. Throws c10::Error for an unknown op (with the nearest names), inside or outside a region; for
// overloads that are decided differently; if a policy is a callable that has to see the call; for "Conflicting
// policies".
std::optional<PolicyDecision> current_decision(std::string_view op);

// For every policy: callables are called as for an op of the region, with the index that the next op will have. One
// that counts its calls counts this one. One input per argument of the op's schema and one output per return of it,
// else it is a c10::Error.
std::optional<PolicyDecision> current_decision(std::string_view op, c10::ArrayRef<c10::IValue> inputs,
                                               c10::ArrayRef<c10::IValue> outputs);

}  // namespace ac2
