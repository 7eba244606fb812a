#include "python/binding/replayable.h"

#include <string>
#include <utility>
#include <vector>

#include "ac2/replayable.h"
#include "python/binding/errors.h"
#include "python/binding/held_object.h"
#include "python/binding/without_compiler.h"

namespace ac2::python {

namespace {

namespace py = pybind11;

std::vector<at::Tensor> call_replayable(const std::string& name, const py::function& fn,
                                        const std::vector<at::Tensor>& tensors,
                                        const std::vector<at::Generator>& generators) {
  const HeldObject held(fn);
  const py::gil_scoped_release no_gil;
  const auto call = [held](const internal::ReplayedParts& parts) {
    const py::gil_scoped_acquire gil;
    const WithoutCompiler without_compiler;
    return calling_python([&] {
      const py::object results = py::reinterpret_borrow<py::function>(held.get())(parts.tensors, parts.generators);
      return results.cast<std::vector<at::Tensor>>();
    });
  };
  return internal::call_replayable(name, call, {tensors, generators});
}

}  // namespace

void add_replayable_functions(py::module_& module) {
  module.def(
      "add_replayable", [](const std::string& name) { with_value_errors([&] { internal::add_replayable(name); }); },
      py::arg("name"));
  module.def("call_replayable", &call_replayable, py::arg("name"), py::arg("fn"), py::arg("tensors"),
             py::arg("generators"));
}

}  // namespace ac2::python
