// Paths that Python gives.
//
//   plan.save(path_of(path, "save"));
//
// Threads: every thread that has the GIL.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <string>

namespace ac2::python {

// A text, bytes, or an os.PathLike. Anything else is a TypeError that names `function`.
inline std::string path_of(const pybind11::object& path, const char* function) {
  // pybind11/stl/filesystem.h would do this, and torch 2.7 comes without that header.
  PyObject* encoded = nullptr;
  if (PyUnicode_FSConverter(path.ptr(), &encoded) == 0) {
    PyErr_Clear();
    throw pybind11::type_error(std::string(function) + " was given " + pybind11::repr(path).cast<std::string>() +
                               "; expected a path: a text or an os.PathLike.");
  }
  return pybind11::reinterpret_steal<pybind11::bytes>(encoded);
}

}  // namespace ac2::python
