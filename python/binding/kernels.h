// Kernels that libraries bind for Python, and that write to tensors past every dispatcher.
//
// A function of an extension module gets the tensors of Python as they are and takes their pointers in C++. The
// function object stays the one that the program has, wherever it has put it: what is replaced is the pointer in it by
// which Python calls it. So `from library import kernel` before the first region is seen too, and identity, names,
// signatures, pickling and overloads are what they were.
//
// Rejected: wrappers in the module's namespace (a program has imported the functions by name; classes, pickles and
// isinstance() see the difference); sys.setprofile() and sys.monitoring (every call of Python's pays, and they do not
// tell the arguments); LD_PRELOAD or patched relocations of data_ptr() (most of it is inlined).
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace ac2::python {

// _C.watch_kernel(function, name): from now on the regions are told of each call of the function. False if this is no
//   function that can be watched, or is one that is. The function lives for ever.
// _C.run_kernel(name, function, args, kwargs): calls it, and tells the regions.
// _C.links_libtorch(path): whether the shared object, which is loaded, depends on LibTorch.
void add_kernels(pybind11::module_& module);

}  // namespace ac2::python
