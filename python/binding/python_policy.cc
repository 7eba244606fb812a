#include "python/binding/python_policy.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <utility>

#include "ac2/internal/region/harmless_policy.h"
#include "ac2/policy_instance.h"
#include "policies/internal/common/idle_hooks.h"
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

// A policy's functions, or its decision, referred to weakly. With the GIL.
class Functions {
 public:
  explicit Functions(const py::object& functions) : weak_(py::weakref(functions)) {}

  py::object get() const {
    py::object functions = weak_.get()();
    TORCH_CHECK(!functions.is_none(), "A policy that is written in Python was asked after its object had died.");
    return functions;
  }

 private:
  HeldObject weak_;
};

// The object of a policy that asks `held`. Its SaveWithHooks are watched here: a Policy watches itself only once C++
// code has made a form that may drop tensors, and those of Python drop none.
py::object watched_policy(Policy policy, const py::object& held) {
  return holding(internal::harmless(policies::internal::watch_hooks(std::move(policy), "A policy",
                                                                    policies::internal::HooksOf::kFunction)),
                 held);
}

}  // namespace

py::object holding(Policy policy, py::object held) {
  py::object object = py::cast(std::move(policy));
  object.attr("_held") = std::move(held);
  return object;
}

py::object callable_policy(const py::object& functions) {
  Policy policy = [weak = Functions(functions)](const OpContext& op) {
    const py::gil_scoped_acquire gil;
    return calling_python_in_op([&] {
      const py::object functions = weak.get();
      const CallArguments call = call_arguments(op.op(), op.inputs());
      py::tuple results(op.outputs().size());
      for (size_t i = 0; i < results.size(); ++i) {
        results[i] = object_of(op.outputs()[i]);
      }
      const py::object context = functions.attr("make_context")(results);
      const py::object answer = functions.attr("policy_fn")(context, op_overload(op.op()), *call.args, **call.kwargs);
      return to_decision(answer, answer_for(op.op()));
    });
  };
  return watched_policy(std::move(policy), functions);
}

py::object by_operator_policy(const py::object& functions) {
  Policy policy = Policy::by_operator([weak = Functions(functions)](const c10::OperatorHandle& op) {
    const py::gil_scoped_acquire gil;
    return calling_python_in_op([&] {
      const py::object functions = weak.get();
      const py::object context = functions.attr("make_context")(py::none());
      return to_decision(functions.attr("policy_fn")(context, op_overload(op)), answer_for(op));
    });
  });
  return watched_policy(std::move(policy), functions);
}

py::object constant_policy(const py::object& decision) {
  const char* const where = "The policy";
  const PolicyDecision decided = to_decision(decision, where);
  if (decided.form() == nullptr) {
    return py::cast(Policy::constant(decided));
  }
  // A form may be an object of the program's that has the policy.
  Policy policy = Policy::by_operator([where, weak = Functions(decision)](const c10::OperatorHandle& /*op*/) {
    const py::gil_scoped_acquire gil;
    return calling_python_in_op([&] { return to_decision(weak.get(), where); });
  });
  return watched_policy(std::move(policy), decision);
}

py::object operator_decisions(const py::object& policy) {
  return py::cpp_function(
      [policy, instance = enter_policy(policy.cast<const Policy&>())](const py::handle op) -> py::object {
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
