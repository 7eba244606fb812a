// The part of a device's memory that PyTorch's allocator may have, which only Python's torch.cuda tells.
#pragma once

#include <pybind11/pybind11.h>

namespace ac2::python {

void add_memory_fraction(pybind11::module_& module);

}  // namespace ac2::python
