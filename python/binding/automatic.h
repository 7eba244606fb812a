// For a program that runs as a whole in a region: the texts of its settings, and the words at its end.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace ac2::python {

void add_automatic(pybind11::module_& module);

}  // namespace ac2::python
