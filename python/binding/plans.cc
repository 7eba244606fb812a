#include "python/binding/plans.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ac2/current_decision.h"
#include "ac2/nn/checkpoint_sequential.h"
#include "ac2/offload.h"
#include "ac2/plan.h"
#include "python/binding/decisions.h"
#include "python/binding/errors.h"
#include "python/binding/forms.h"
#include "python/binding/held_object.h"
#include "python/binding/path.h"
#include "python/binding/python_policy.h"

namespace ac2::python {

namespace py = pybind11;

namespace {

using WithoutGil = py::call_guard<py::gil_scoped_release>;

std::unique_ptr<StepPlanner> make_planner(const py::function& step, bool modelled_costs,
                                          std::optional<int64_t> recording_budget,
                                          std::optional<double> copy_bytes_per_forward,
                                          std::optional<c10::Device> step_peak_on, int64_t in_flight,
                                          const py::sequence& given) {
  const HeldObject held(step);
  const Forms forms = to_forms(given);
  const std::function<void()> call = [&held] {
    const py::gil_scoped_acquire gil;
    calling_python([&] { return py::object(held.get()()); });
  };
  const py::gil_scoped_release no_gil;
  return std::make_unique<StepPlanner>(call, PlanOptions{.modelled_costs = modelled_costs,
                                                         .recording_budget = recording_budget,
                                                         .forms = forms,
                                                         .copy_bytes_per_forward = copy_bytes_per_forward,
                                                         .step_peak_on = step_peak_on,
                                                         .in_flight = in_flight});
}

// The overload "aten::add.Tensor"; "aten::mm" or "aten::mm.default" for the one without a name. Null for a name that no
// op has.
std::optional<c10::OperatorHandle> overload_of(const std::string& op) {
  const size_t dot = op.find('.');
  const std::string overload = dot == std::string::npos ? "" : op.substr(dot + 1);
  return c10::Dispatcher::singleton().findSchema({op.substr(0, dot), overload == "default" ? "" : overload});
}

template <class Arguments>
std::vector<c10::IValue> values_of(const py::sequence& objects, const Arguments& arguments, const std::string& op,
                                   const char* what) {
  if (objects.size() != arguments.size()) {
    throw py::value_error(c10::str("current_decision was given ", objects.size(), " ", what, " for ", op, "; expected ",
                                   arguments.size(), ", one for each that its schema has."));
  }
  std::vector<c10::IValue> values;
  for (size_t i = 0; i < arguments.size(); ++i) {
    values.push_back(torch::jit::toIValue(objects[i], arguments[i].type()));
  }
  return values;
}

py::object decision_for(const py::object& given, const py::object& inputs, const py::object& outputs) {
  const std::string op = op_name(given);
  std::optional<PolicyDecision> decision;
  if (inputs.is_none() && outputs.is_none()) {
    const py::gil_scoped_release no_gil;
    decision = current_decision(op);
  } else {
    const std::optional<c10::OperatorHandle> handle = overload_of(op);
    if (!handle || inputs.is_none() || outputs.is_none()) {
      throw py::value_error(
          "current_decision needs one overload of an op, such as \"aten::add.Tensor\", with both its "
          "inputs and its outputs; it was given \"" +
          op + "\".");
    }
    const auto ins = values_of(inputs, handle->schema().arguments(), op, "inputs");
    const auto outs = values_of(outputs, handle->schema().returns(), op, "outputs");
    const py::gil_scoped_release no_gil;
    decision = current_decision(op, ins, outs);
  }
  return decision ? from_decision(*decision) : py::none();
}

// PlanSummary::Use, a tuple with names.
py::handle form_use_class() {
  static PyObject* const type = [] {
    py::object made = py::module_::import("collections")
                          .attr("namedtuple")("FormUse", py::make_tuple("form", "values", "bytes", "cost"));
    made.attr("__module__") = "ac2._C";
    made.attr("__doc__") = "What a plan holds in one form.";
    return made.release().ptr();
  }();
  return type;
}

py::list uses_of(const PlanSummary& summary) {
  py::list uses;
  for (const PlanSummary::Use& use : summary.uses) {
    uses.append(form_use_class()(use.form, use.values, use.bytes, use.cost));
  }
  return uses;
}

py::tuple fields_of(const PlanSummary& summary) {
  return py::make_tuple(summary.forward_bytes, summary.peak_bytes, summary.replayed_ops, summary.replay_cost,
                        summary.forward_cost, uses_of(summary), summary.step_peak_bytes, summary.step_start_bytes);
}

Plan load(const py::object& given, const py::sequence& own) {
  const std::string path = path_of(given, "load_plan");
  const Forms forms = to_forms(own);
  const py::gil_scoped_release no_gil;
  return Plan::load(path, forms);
}

void add_planner(py::module_& module) {
  module.attr("FormUse") = form_use_class();
  py::class_<PlanSummary>(module, "PlanSummary", "What a plan comes to at most, as computed from the recorded step.")
      .def_readonly("forward_bytes", &PlanSummary::forward_bytes, "Held when backward begins.")
      .def_readonly("peak_bytes", &PlanSummary::peak_bytes, "The most held at any time.")
      .def_readonly("replayed_ops", &PlanSummary::replayed_ops, "In a backward.")
      .def_readonly("replay_cost", &PlanSummary::replay_cost, "In the unit of forward_cost: only ratios mean anything.")
      .def_readonly("forward_cost", &PlanSummary::forward_cost, "Of all the step's ops outside backward.")
      .def_property_readonly(
          "uses", &uses_of,
          "For each form that holds results: form (its name), values, bytes before they are packed, "
          "and cost, of packing and unpacking or of waiting for copies, in the unit of forward_cost.")
      .def_readonly("step_peak_bytes", &PlanSummary::step_peak_bytes,
                    "The most that all tensors on the StepPlanner's step_peak_on take in a step that follows the plan. "
                    "None where that was not measured.")
      .def_readonly("step_start_bytes", &PlanSummary::step_start_bytes,
                    "Of step_peak_bytes, what was there when the step began.")
      .def(
          "__eq__", [](const PlanSummary& a, const PlanSummary& b) { return fields_of(a).equal(fields_of(b)); },
          py::is_operator())
      .def("__repr__", [](const PlanSummary& summary) {
        const auto or_none = [](std::optional<int64_t> bytes) { return bytes ? std::to_string(*bytes) : "None"; };
        return c10::str("PlanSummary(forward_bytes=", summary.forward_bytes, ", peak_bytes=", summary.peak_bytes,
                        ", replayed_ops=", summary.replayed_ops, ", replay_cost=", summary.replay_cost,
                        ", forward_cost=", summary.forward_cost,
                        ", uses=", py::repr(uses_of(summary)).cast<std::string>(),
                        ", step_peak_bytes=", or_none(summary.step_peak_bytes),
                        ", step_start_bytes=", or_none(summary.step_start_bytes), ")");
      });
  py::class_<Plan, Policy>(
      module, "Plan",
      "A plan for a step, and what it comes to. A scope takes it in a policy's place, and its budget "
      "with it.")
      .def_property_readonly("summary", &Plan::summary)
      .def_property_readonly(
          "policy", [](py::object self) { return self; }, "The plan itself: an old name, which goes with 0.2.")
      .def(
          "save",
          [](const Plan& plan, const py::object& given) {
            const std::string path = path_of(given, "save");
            const py::gil_scoped_release no_gil;
            plan.save(path);
          },
          py::arg("path"), "Writes the plan to a file, which ac2.Plan.load() reads.");
  py::class_<StepPlanner::Op>(module, "PlannedOp", "An op of the step whose results may be kept or not.")
      .def_readonly("name", &StepPlanner::Op::name, "\"aten::add.Tensor\".")
      .def_readonly("index", &StepPlanner::Op::index, "How many ops the step ran before it.")
      .def_readonly("bytes", &StepPlanner::Op::bytes, "Of its results that backward wants.")
      .def_readonly("cost", &StepPlanner::Op::cost, "In the unit of PlanSummary.");
  py::class_<StepPlanner>(module, "StepPlanner")
      .def(py::init(&make_planner), py::arg("step"), py::arg("modelled_costs"), py::arg("recording_budget"),
           py::arg("copy_bytes_per_forward"), py::arg("step_peak_on"), py::arg("in_flight"), py::arg("forms"))
      .def(
          "plan", [](StepPlanner& planner, int64_t bytes) { return planner.plan(bytes); }, WithoutGil(),
          py::arg("bytes"))
      .def("smallest", &StepPlanner::smallest, WithoutGil())
      .def(
          "summarize",
          [](StepPlanner& planner, const py::function& keeps) {
            const HeldObject held(keeps);
            const py::gil_scoped_release no_gil;
            return planner.summarize([&held](const StepPlanner::Op& op) {
              const py::gil_scoped_acquire gil;
              return calling_python([&] { return static_cast<bool>(py::bool_(held.get()(op))); });
            });
          },
          py::arg("keeps"))
      .def(
          "budget", [](StepPlanner& planner, int64_t bytes) { return planner.budget(bytes); }, WithoutGil(),
          py::arg("bytes"));
}

}  // namespace

void add_plans(py::module_& module) {
  add_planner(module);
  module.def("current_decision", &decision_for, py::arg("op"), py::arg("inputs"), py::arg("outputs"));
  module.def("load_plan", &load, py::arg("path"), py::arg("forms"));
  module.def(
      "sqrt_segments", [](int64_t modules) { return with_value_errors([&] { return sqrt_segments(modules); }); },
      py::arg("modules"),
      "How many segments checkpoint_sequential() makes of so many modules: the square root, rounded.");
  py::class_<OffloadMemory>(module, "OffloadMemory", "The pinned memory of the whole process.")
      .def_readonly("bytes", &OffloadMemory::bytes, "In the pool.")
      .def_readonly("bytes_in_use", &OffloadMemory::bytes_in_use, "Of these, what has values in it.")
      .def("__repr__", [](const OffloadMemory& memory) {
        return c10::str("OffloadMemory(bytes=", memory.bytes, ", bytes_in_use=", memory.bytes_in_use, ")");
      });
  module.def("offload_memory", &offload_memory, WithoutGil(),
             "The pinned memory of the process that offloading has: in its pool, and in use.");
  module.def("release_offload_memory", &release_offload_memory, WithoutGil(),
             "Gives pinned memory that is not in use back. Blocks that a copy may still be reading stay in the pool.");
}

}  // namespace ac2::python
