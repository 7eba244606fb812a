// Policies that are written in Python.
//
// Threads: the GIL is taken for each call of the callable, and for nothing else.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include "ac2/policy.h"

namespace ac2::python {

// Both take an object with the attributes policy_fn and make_context, and return an ac2._C.Policy that refers to it.
// The policy itself refers to it weakly, so that Python's collector sees all that keeps a policy's function alive. C++
// code that has the policy keeps the Python object that it came from.
//
// Asked for each op as policy_fn(ctx, op, *args, **kwargs), after the op ran; `make_context(results)` returns ctx.
pybind11::object callable_policy(const pybind11::object& functions);
// Asked once for each operator and region as policy_fn(ctx, op).
pybind11::object by_operator_policy(const pybind11::object& functions);
// The same decision for every op.
pybind11::object constant_policy(const pybind11::object& decision);
// The Python object of a policy that is made of what Python holds, which lives as long as it does.
pybind11::object holding(Policy policy, pybind11::object held);

// The decisions of a region of `policy` on operators: a function that takes an OpOverload and returns the decision, or
// None if the policy has to see the call; the text "SaveWithHooks" stands for such.
pybind11::object operator_decisions(const pybind11::object& policy);

// The name that ac2::policies take: "aten::mm" of torch.ops.aten.mm, "aten::mm.default" of torch.ops.aten.mm.default,
// and of a text the text itself.
std::string op_name(pybind11::handle op);

}  // namespace ac2::python
