#include "python/binding/memory_errors.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <exception>
#include <string_view>

#include "ac2/internal/libtorch/out_of_memory.h"

namespace py = pybind11;

namespace ac2::python {

namespace {

// torch.OutOfMemoryError. Leaked, as all that the process needs to its end.
PyObject* accelerators_error = nullptr;

bool is_memory_error(const std::exception& error) {
  const auto* raised = dynamic_cast<const python_error*>(&error);
  if (raised == nullptr || raised->type == nullptr) {
    return false;
  }
  const py::gil_scoped_acquire gil;
  return PyErr_GivenExceptionMatches(raised->type, PyExc_MemoryError) != 0 ||
         PyErr_GivenExceptionMatches(raised->type, accelerators_error) != 0 ||
         (PyErr_GivenExceptionMatches(raised->type, PyExc_RuntimeError) != 0 &&
          std::string_view(raised->what()).find("can't allocate memory") != std::string_view::npos);
}

}  // namespace

void recognise_memory_errors() {
  accelerators_error = py::object(py::module_::import("torch").attr("OutOfMemoryError")).release().ptr();
  internal::set_foreign_memory_errors(&is_memory_error);
}

}  // namespace ac2::python
