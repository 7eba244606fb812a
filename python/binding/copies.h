// Objects that copy.copy() and copy.deepcopy() return as they are.
//
//   py::class_<Policy> policy(module, "Policy");
//   copy_is_itself(policy).def(...);
//
// A module that was wrapped with such an object can be copied, as averages of weights do it: the copy has the same
// policy, and shares its memory budget with the module.
//
// Threads: the one that makes the module.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace ac2::python {

template <class Class>
Class& copy_is_itself(Class& type) {
  type.def("__copy__", [](pybind11::object self) { return self; });
  type.def("__deepcopy__", [](pybind11::object self, const pybind11::object& /*memo*/) { return self; });
  return type;
}

}  // namespace ac2::python
