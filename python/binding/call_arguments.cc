#include "python/binding/call_arguments.h"

#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/utils/tensor_memoryformats.h>

#include "python/binding/objects.h"

namespace ac2::python {

namespace py = pybind11;

namespace {

// Types, layouts and formats are numbers in an IValue; the schema knows which they are.
py::object to_python(const c10::Argument& argument, const c10::IValue& value) {
  if (value.isInt()) {
    c10::TypePtr type = argument.real_type();
    if (const auto optional = type->cast<c10::OptionalType>()) {
      type = optional->getElementType();
    }
    switch (type->kind()) {
      case c10::TypeKind::ScalarTypeType:
        return py::reinterpret_borrow<py::object>(
            reinterpret_cast<PyObject*>(torch::getTHPDtype(static_cast<c10::ScalarType>(value.toInt()))));
      case c10::TypeKind::LayoutType:
        return py::reinterpret_borrow<py::object>(
            reinterpret_cast<PyObject*>(torch::getTHPLayout(static_cast<c10::Layout>(value.toInt()))));
      case c10::TypeKind::MemoryFormatType:
        return py::reinterpret_borrow<py::object>(
            torch::utils::getTHPMemoryFormat(static_cast<c10::MemoryFormat>(value.toInt())));
      default:
        break;
    }
  }
  return object_of(value);
}

bool has_default(const c10::Argument& argument, const c10::IValue& value) {
  return argument.default_value() && *argument.default_value() == value;
}

}  // namespace

py::object op_overload(const c10::OperatorHandle& op) {
  return py::reinterpret_borrow<py::object>(torch::detail::getTorchApiFunction(op));
}

CallArguments call_arguments(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> inputs) {
  const std::vector<c10::Argument>& arguments = op.schema().arguments();
  size_t positional = 0;
  while (positional < arguments.size() && !arguments[positional].kwarg_only()) {
    ++positional;
  }
  size_t given = positional;
  while (given > 0 && has_default(arguments[given - 1], inputs[given - 1])) {
    --given;
  }
  CallArguments call{py::tuple(given), py::dict()};
  for (size_t i = 0; i < given; ++i) {
    call.args[i] = to_python(arguments[i], inputs[i]);
  }
  for (size_t i = positional; i < arguments.size(); ++i) {
    if (!has_default(arguments[i], inputs[i])) {
      call.kwargs[py::str(arguments[i].name())] = to_python(arguments[i], inputs[i]);
    }
  }
  return call;
}

}  // namespace ac2::python
