// DLPack's table of C functions, by which libraries (tvm-ffi and what is built on it) get at the memory of a tensor
// without any call of Python's: torch.Tensor.__dlpack_c_exchange_api__, a capsule, from torch 2.11 on.
//
// Regions are told of each tensor that is asked for, as where Tensor.__dlpack__() is called. For that the capsule is
// replaced by one with another table, whose functions tell first.
//
// Rejected: writing to PyTorch's own table, which may be in memory that cannot be written to.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace ac2::python {

// _C.telling_exchange_api(capsule): the capsule to put in its place; None if there is nothing to replace.
void add_exchange_api(pybind11::module_& module);

}  // namespace ac2::python
