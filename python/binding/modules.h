// Names of modules, and the calls of modules by which policies know where an op runs.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <utility>
#include <vector>

#include "ac2/internal/modules/module_stack.h"

namespace ac2::python {

void add_modules(pybind11::module_& module);

// Of pairs of a path and a class.
internal::KnownModules known_modules(const std::vector<std::pair<std::string, std::string>>& named);

}  // namespace ac2::python
