// Objects that copy.copy() and copy.deepcopy() return as they are, and that pickle does not take unless the class says
// how.
//
//   py::class_<Policy> policy(module, "Policy");
//   is_not_pickled(copy_is_itself(policy)).def(...);
//
// A module that was wrapped with such an object can be copied, as averages of weights do it: the copy has the same
// policy, and shares its memory budget with the module.
//
// Threads: the one that makes the module.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <string>

namespace ac2::python {

template <class Class>
Class& copy_is_itself(Class& type) {
  type.def("__copy__", [](pybind11::object self) { return self; });
  type.def("__deepcopy__", [](pybind11::object self, const pybind11::object& /*memo*/) { return self; });
  return type;
}

template <class Class>
Class& is_not_pickled(Class& type) {
  type.def("__reduce__", [](const pybind11::object& self) -> pybind11::object {
    throw pybind11::type_error(
        "pickle was given " + pybind11::repr(self).cast<std::string>() +
        ", an object of this process that cannot be stored. A module that is to be pickled takes "
        "a policy by its name, such as \"speed\", a list of ops, or a function of a Python "
        "module. A plan is written to a file by plan.save(path), and read by ac2.load_plan(path).");
  });
  return type;
}

}  // namespace ac2::python
