// Plans of steps, and what is asked of the policies in force.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace ac2::python {

void add_plans(pybind11::module_& module);

}  // namespace ac2::python
