#include "python/binding/python_policy.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <utility>

#include "python/binding/call_arguments.h"
#include "python/binding/decisions.h"
#include "python/binding/errors.h"
#include "python/binding/held_object.h"
#include "python/binding/objects.h"

namespace ac2::python {

namespace py = pybind11;

namespace {

std::string answer_for(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  return "What the policy returned for " + name.name + (name.overload_name.empty() ? "" : "." + name.overload_name);
}

}  // namespace

Policy callable_policy(py::object policy_fn, py::object make_context) {
  return [fn = HeldObject(std::move(policy_fn)), make = HeldObject(std::move(make_context))](const OpContext& op) {
    const py::gil_scoped_acquire gil;
    return calling_python([&] {
      const CallArguments call = call_arguments(op.op(), op.inputs());
      py::tuple results(op.outputs().size());
      for (size_t i = 0; i < results.size(); ++i) {
        results[i] = object_of(op.outputs()[i]);
      }
      const py::object context = make.get()(results);
      const py::object answer = fn.get()(context, op_overload(op.op()), *call.args, **call.kwargs);
      return to_decision(answer, answer_for(op.op()));
    });
  };
}

Policy by_operator_policy(py::object policy_fn, py::object make_context) {
  return Policy::by_operator([fn = HeldObject(std::move(policy_fn)),
                              make = HeldObject(std::move(make_context))](const c10::OperatorHandle& op) {
    const py::gil_scoped_acquire gil;
    return calling_python(
        [&] { return to_decision(fn.get()(make.get()(py::none()), op_overload(op)), answer_for(op)); });
  });
}

py::object operator_decisions(const Policy& policy) {
  return py::cpp_function([instance = policy.enter()](const py::handle op) -> py::object {
    const auto schema = op.attr("_schema");
    const c10::OperatorHandle handle = c10::Dispatcher::singleton().findSchemaOrThrow(
        schema.attr("name").cast<std::string>().c_str(), schema.attr("overload_name").cast<std::string>().c_str());
    const std::optional<PolicyDecision> decision = instance.decide(handle);
    return decision ? from_decision(*decision) : py::none();
  });
}

std::string op_name(py::handle op) {
  if (py::isinstance<py::str>(op)) {
    return op.cast<std::string>();
  }
  if (py::hasattr(op, "_schema") && py::hasattr(op, "_overloadname")) {
    return op.attr("_schema").attr("name").cast<std::string>() + "." + op.attr("_overloadname").cast<std::string>();
  }
  // A packet, which means all its overloads.
  if (py::hasattr(op, "_qualified_op_name")) {
    return op.attr("_qualified_op_name").cast<std::string>();
  }
  throw py::type_error("An op is " + py::repr(op).cast<std::string>() +
                       "; expected a name such as \"aten::mm\", torch.ops.aten.mm or torch.ops.aten.mm.default.");
}

}  // namespace ac2::python
