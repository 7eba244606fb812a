// Errors of Python's that say that memory ran out, told to the library.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <exception>

namespace ac2::python {

// True of MemoryError, torch.OutOfMemoryError and what LibTorch's CPU allocator raises, where a function of the
// program's has raised it. After add_memory_errors().
bool is_memory_error(const std::exception& error);

// _C.is_about_hosts_memory(text): whether the text is that of an error of that allocator's. Needs the GIL.
void add_memory_errors(pybind11::module_& module);

}  // namespace ac2::python
