// The names of modules, for what tells where the bytes that regions hold come from.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <string>
#include <vector>

#include "ac2/internal/libtorch/host_language.h"

namespace ac2::python {

// Of HostLanguage.
internal::StorageNames names_of_all_modules();
std::vector<std::string> what_the_program_holds();

// _C.set_namer(fn): fn() returns pairs of a name and a tensor, for every parameter of every module of the process.
// _C.set_holdings(fn): fn() returns sentences about what the program holds by itself.
void add_storage_names(pybind11::module_& module);

}  // namespace ac2::python
