// ac2::in_chunks for functions of Python's.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace ac2::python {

// _C.linear_cross_entropy, tiled_mlp and query_chunked_attention, and
// _C.in_chunks(fn, tensors, dim, chunks, bytes, reduce, exact): what `fn` returns, a tensor or a tuple of tensors.
void add_chunks(pybind11::module_& module);

}  // namespace ac2::python
