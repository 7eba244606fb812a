// Paths that Python gives.
//
//   save_plan(policy, path_of(path, "save"));
//
// Threads: every thread that has the GIL.
#pragma once

#include <pybind11/stl/filesystem.h>
#include <torch/csrc/utils/pybind.h>

#include <filesystem>
#include <string>

namespace ac2::python {

// A text, bytes, or an os.PathLike. Anything else is a TypeError that names `function`.
inline std::string path_of(const pybind11::object& path, const char* function) {
  pybind11::detail::make_caster<std::filesystem::path> given;
  if (!given.load(path, false)) {
    throw pybind11::type_error(std::string(function) + " was given " + pybind11::repr(path).cast<std::string>() +
                               "; expected a path: a text or an os.PathLike.");
  }
  return pybind11::detail::cast_op<std::filesystem::path&>(given).string();
}

}  // namespace ac2::python
