// Errors of Python's that say that memory ran out, told to the library.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace ac2::python {

// From now on internal::is_out_of_memory() knows MemoryError, torch.OutOfMemoryError and what LibTorch's CPU allocator
// raises, where a function of the program's has raised it. Python may ask of a text whether it is that allocator's, by
// is_about_hosts_memory(). To be called once. Needs the GIL.
void add_memory_errors(pybind11::module_& module);

}  // namespace ac2::python
