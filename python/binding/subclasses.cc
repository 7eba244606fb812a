#include "python/binding/subclasses.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <string>
#include <utility>

#include "ac2/internal/region/policies_here.h"
#include "python/binding/errors.h"
#include "python/binding/packed_value.h"
#include "python/binding/without_compiler.h"

namespace ac2::python {

namespace py = pybind11;

namespace {

class PythonSubclasses final : public internal::SubclassCodec {
 public:
  std::optional<Parts> take_apart(const at::Tensor& tensor) const override {
    const py::gil_scoped_acquire gil;
    return calling_python([&]() -> std::optional<Parts> {
      const WithoutCompiler without_compiler;
      const py::object taken = function("take_apart")(tensor);
      if (taken.is_none()) {
        return std::nullopt;
      }
      const auto [tensors, context] = taken.cast<std::pair<py::list, py::object>>();
      Parts parts;
      for (const py::handle part : tensors) {
        parts.tensors.push_back(THPVariable_Unpack(part.ptr()));
      }
      parts.context = hold_object(context);
      return parts;
    });
  }

  at::Tensor put_together(c10::ArrayRef<at::Tensor> parts, const c10::IValue& context) const override {
    const py::gil_scoped_acquire gil;
    return calling_python([&] {
      const WithoutCompiler without_compiler;
      py::list tensors;
      for (const at::Tensor& part : parts) {
        tensors.append(part);
      }
      return function("put_together")(tensors, unpack_object(context)).cast<at::Tensor>();
    });
  }

  std::string note_whole(const at::Tensor& tensor) const override {
    if (!tensor.key_set().has(c10::DispatchKey::Python)) {
      return "";
    }
    const py::gil_scoped_acquire gil;
    return calling_python([&] {
      const WithoutCompiler without_compiler;
      return function("note_whole")(tensor, internal::policies_here_save_everything()).cast<std::string>();
    });
  }

 private:
  static py::object function(const char* name) { return py::module_::import("ac2._subclasses").attr(name); }
};

}  // namespace

const internal::SubclassCodec& subclass_codec() {
  static const auto* codec = new PythonSubclasses;  // leaked: graphs may outlive static destruction
  return *codec;
}

}  // namespace ac2::python
