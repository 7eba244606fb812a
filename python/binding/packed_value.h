// The result of a pack function of Python's, made into an IValue and back.
//
// Tensors, numbers, strings, None and tuples of them are what they are in C++, so that their bytes are counted; any
// other object is held as it is.
//
// Threads: any that has the GIL.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/utils/pybind.h>

namespace ac2::python {

// Any object as it is.
c10::IValue hold_object(pybind11::handle object);
c10::IValue pack_object(pybind11::handle object);
pybind11::object unpack_object(const c10::IValue& value);

}  // namespace ac2::python
