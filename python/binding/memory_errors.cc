#include "python/binding/memory_errors.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <exception>
#include <string>

#include "ac2/internal/libtorch/told_shortage.h"

namespace py = pybind11;

namespace ac2::python {

namespace {

// torch.OutOfMemoryError. Leaked, as all that the process needs to its end.
PyObject* accelerators_error = nullptr;

}  // namespace

bool is_memory_error(const std::exception& error) {
  const auto* raised = dynamic_cast<const python_error*>(&error);
  if (raised == nullptr || raised->type == nullptr) {
    return false;
  }
  const py::gil_scoped_acquire gil;
  return PyErr_GivenExceptionMatches(raised->type, PyExc_MemoryError) != 0 ||
         PyErr_GivenExceptionMatches(raised->type, accelerators_error) != 0 ||
         (PyErr_GivenExceptionMatches(raised->type, PyExc_RuntimeError) != 0 &&
          internal::is_about_hosts_memory(raised->what()));
}

void add_memory_errors(py::module_& module) {
  module.def("is_about_hosts_memory", [](const std::string& text) { return internal::is_about_hosts_memory(text); });
  accelerators_error = py::object(py::module_::import("torch").attr("OutOfMemoryError")).release().ptr();
}

}  // namespace ac2::python
