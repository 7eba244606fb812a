// Values of C++ as Python sees them.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

namespace ac2::python {

// As torch::jit::toPyObject(), which refuses tensors with names.
inline pybind11::object object_of(const c10::IValue& value) {
  if (value.isTensor()) {
    return pybind11::cast(value.toTensor());
  }
  if (value.isTensorList() || value.isOptionalTensorList()) {
    pybind11::list list;
    for (const c10::IValue& element : value.toListRef()) {
      list.append(object_of(element));
    }
    return list;
  }
  return torch::jit::toPyObject(value);
}

}  // namespace ac2::python
