// Names of modules.
#pragma once

#include <pybind11/pybind11.h>

namespace ac2::python {

void add_modules(pybind11::module_& module);

}  // namespace ac2::python
