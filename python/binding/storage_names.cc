#include "python/binding/storage_names.h"

#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <string>
#include <utility>
#include <vector>

#include "ac2/internal/report/shortage_note.h"

namespace ac2::python {

namespace {

namespace py = pybind11;

// Leaked: errors may be made while the interpreter ends.
py::object& namer() {
  static auto* function = new py::object;
  return *function;
}

py::object& holdings() {
  static auto* function = new py::object;  // leaked, as the namer
  return *function;
}

}  // namespace

internal::StorageNames names_of_all_modules() {
  internal::StorageNames names;
  const py::gil_scoped_acquire gil;
  if (!namer()) {
    return names;  // the package is being imported
  }
  try {
    for (const py::handle pair : namer()()) {
      const auto [name, tensor] = pair.cast<std::pair<std::string, py::object>>();
      if (THPVariable_Check(tensor.ptr()) && THPVariable_Unpack(tensor.ptr()).has_storage()) {
        names.emplace_back(THPVariable_Unpack(tensor.ptr()).storage().unsafeGetStorageImpl(), name);
      }
    }
  } catch (py::error_already_set& error) {
    // The error that is being told of must not be hidden by one about names. Where memory is out, there are no names.
    if (!error.matches(PyExc_MemoryError)) {
      error.discard_as_unraisable("ac2: the names of modules");
    }
  }
  return names;
}

std::vector<std::string> what_the_program_holds() {
  const py::gil_scoped_acquire gil;
  if (!holdings()) {
    return {};
  }
  try {
    return holdings()().cast<std::vector<std::string>>();
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_MemoryError)) {
      error.discard_as_unraisable("ac2: what the program holds");
    }
  }
  return {};
}

void add_storage_names(py::module_& module) {
  module.def("set_namer", [](py::object function) { namer() = std::move(function); });
  module.def("set_holdings", [](py::object function) { holdings() = std::move(function); });
  module.def(
      "shortage_note",
      [](const std::string& error) {
        const py::gil_scoped_release no_gil;
        return internal::shortage_note(error, /*call=*/nullptr);
      },
      py::arg("error"));
}

}  // namespace ac2::python
