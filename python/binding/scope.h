// Regions, traces and what is asked of them.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace ac2::python {

void add_scope(pybind11::module_& module);
void add_policies(pybind11::module_& module);

}  // namespace ac2::python
