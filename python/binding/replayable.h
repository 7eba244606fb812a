// ac2::replayable for functions of Python's.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace ac2::python {

// _C.add_replayable(name), and _C.call_replayable(name, fn, tensors, generators): what `fn`, which takes a list of
// tensors and one of generators and returns one of tensors, returns.
void add_replayable_functions(pybind11::module_& module);

}  // namespace ac2::python
