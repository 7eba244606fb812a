// A recorded call as Python's dispatch sees it: func(*args, **kwargs).
//
// Threads: any that has the GIL.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/utils/pybind.h>

namespace ac2::python {

// The OpOverload of `op`, such as torch.ops.aten.add.Tensor.
pybind11::object op_overload(const c10::OperatorHandle& op);

struct CallArguments {
  pybind11::tuple args;
  pybind11::dict kwargs;
};
// As __torch_dispatch__ is given them: arguments that are keyword-only are in `kwargs`, and those that have their
// default value are left out, unless one follows that has not.
CallArguments call_arguments(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> inputs);

}  // namespace ac2::python
