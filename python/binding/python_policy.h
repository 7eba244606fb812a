// Policies that are written in Python.
//
// Threads: the GIL is taken for each call of the callable, and for nothing else.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include "ac2/policy.h"

namespace ac2::python {

// Asked for each op as policy_fn(ctx, op, *args, **kwargs), after the op ran; `make_context(results)` returns ctx.
Policy callable_policy(pybind11::object policy_fn, pybind11::object make_context);
// Asked once for each operator and region as policy_fn(ctx, op).
Policy by_operator_policy(pybind11::object policy_fn, pybind11::object make_context);

// What a region of `policy` would decide of operators: a function that takes an OpOverload and returns the decision, or
// None if the policy has to see the call; the text "SaveWithHooks" stands for such.
pybind11::object operator_decisions(const Policy& policy);

// The name that ac2::policies take: "aten::mm" of torch.ops.aten.mm, "aten::mm.default" of torch.ops.aten.mm.default,
// and of a text the text itself.
std::string op_name(pybind11::handle op);

}  // namespace ac2::python
