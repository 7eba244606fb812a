#include "ac2/scope.h"

#include <c10/core/DispatchKey.h>
#include <c10/core/DispatchKeySet.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ac2/expose.h"
#include "ac2/internal/libtorch/managed_tensors.h"
#include "ac2/internal/observe/log_of.h"
#include "ac2/internal/record/early_counts.h"
#include "ac2/internal/record/handed_out.h"
#include "ac2/internal/region/compiler_tracing.h"
#include "ac2/internal/region/region_keys.h"
#include "ac2/internal/region/trace_access.h"
#include "ac2/internal/region/unit_boundary.h"
#include "ac2/internal/report/summary.h"
#include "ac2/memory_budget.h"
#include "ac2/names.h"
#include "ac2/offload.h"
#include "ac2/op_scopes.h"
#include "ac2/report.h"
#include "ac2/trace.h"
#include "python/binding/being_packed.h"
#include "python/binding/budgets.h"
#include "python/binding/copies.h"
#include "python/binding/decisions.h"
#include "python/binding/errors.h"
#include "python/binding/forms.h"
#include "python/binding/held_object.h"
#include "python/binding/scope.h"
#include "python/binding/traces.h"
#include "python/binding/without_compiler.h"

namespace ac2::python {

namespace py = pybind11;

namespace {

// The runtime takes locks under which tensors, and so Python objects, may die on other threads.
using WithoutGil = py::call_guard<py::gil_scoped_release>;

std::vector<std::shared_ptr<const Trace>> traces_of(const std::vector<PyTrace>& traces) {
  std::vector<std::shared_ptr<const Trace>> all;
  for (const PyTrace& one : traces) {
    all.push_back(one.trace);
  }
  return all;
}

// Of one region, or of several by the names that they are given.
std::string summary_of(const std::vector<std::pair<std::string, PyTrace>>& traces) {
  std::vector<internal::NamedLog> logs;
  for (const auto& [name, one] : traces) {
    logs.push_back({name, internal::log_of(internal::TraceAccess::tape(*one.trace))});
  }
  return logs.size() == 1 ? internal::summary(logs.front().log) : internal::summary(logs);
}

// Not by the pointer's destructor, through which no exception comes.
template <class Scope>
void destroy(std::unique_ptr<Scope> scope) {
  delete scope.release();
}

// An open scope. RAII is Python's with statement, so that it is closed by name.
class PyScope {
 public:
  // `held` is the Python object of the policy: see callable_policy().
  PyScope(const std::optional<Policy>& policy, const ScopeOptions& options, HeldObject held)
      : held_(std::move(held)),
        scope_(policy ? std::make_unique<PolicyScope>(*policy, options) : std::make_unique<PolicyScope>(options)),
        trace_{scope_->trace()} {}

  // A scope that is closed where it cannot be is an error of its owner, which close() reports.
  ~PyScope() {
    try {
      close();
    } catch (const c10::Error&) {
    }
  }
  PyScope(const PyScope&) = delete;
  PyScope& operator=(const PyScope&) = delete;

  void close() {
    const std::optional<HeldObject> held = std::exchange(held_, std::nullopt);
    destroy(std::move(scope_));
  }
  const PyTrace& trace() const { return trace_; }

 private:
  std::optional<HeldObject> held_;
  std::unique_ptr<PolicyScope> scope_;
  PyTrace trace_;
};

// A guard as a context manager, which may be entered again inside itself.
template <class Guard>
class PyGuard {
 public:
  PyGuard() = default;
  // A scope that is left where it cannot be is an error of its owner, which leave() reports.
  ~PyGuard() {
    while (!guards_.empty()) {
      try {
        leave();
      } catch (const c10::Error&) {
      }
    }
  }
  PyGuard(const PyGuard&) = delete;
  PyGuard& operator=(const PyGuard&) = delete;

  static void add(py::module_& module, const char* name, const char* doc) {
    py::class_<PyGuard>(module, name, doc)
        .def(py::init<>())
        .def(
            "__enter__",
            [](PyGuard& self) -> PyGuard& {
              const py::gil_scoped_release no_gil;
              self.guards_.push_back(std::make_unique<Guard>());
              return self;
            },
            py::return_value_policy::reference)
        .def("__exit__", [name](PyGuard& self, const py::args&) {
          TORCH_CHECK(!self.guards_.empty(), "This ", name, " is not open. Use it in a with statement.");
          self.leave();
        });
  }

 private:
  void leave() {
    const py::gil_scoped_release no_gil;
    std::unique_ptr<Guard> guard = std::move(guards_.back());
    guards_.pop_back();
    destroy(std::move(guard));
  }

  std::vector<std::unique_ptr<Guard>> guards_;
};

void gather_units_of_fsdp(const std::vector<at::Tensor>& parameters) {
  const py::gil_scoped_acquire gil;
  calling_python([&] {
    const WithoutCompiler without_compiler;
    py::list tensors;
    for (const at::Tensor& parameter : parameters) {
      tensors.append(parameter);
    }
    py::module_::import("ac2._fsdp").attr("gather_units_of")(tensors);
  });
}

std::unique_ptr<PyScope> open_scope(const py::object& policy, const py::object& memory_budget, bool modelled_costs,
                                    bool verify, bool timeline, const std::optional<OffloadOptions>& offload,
                                    bool gather_units, bool keep_for_next_backward, const py::sequence& forms) {
  ScopeOptions options{.modelled_costs = modelled_costs,
                       .verify = verify,
                       .timeline = timeline,
                       .offload = offload,
                       .keep_for_next_backward = keep_for_next_backward,
                       .forms = to_forms(forms)};
  if (gather_units) {
    options.gather_units = &gather_units_of_fsdp;
  }
  // A number is checked here, so that it is Python's kind of error.
  if (const auto budget = with_value_errors([&] { return budget_option(memory_budget).budget(modelled_costs); })) {
    options.memory_budget = *budget;
  }
  const auto opened = policy.cast<std::optional<Policy>>();
  HeldObject held(policy);
  return with_python_warnings([&] {
    const py::gil_scoped_release no_gil;
    return std::make_unique<PyScope>(opened, options, std::move(held));
  });
}

std::string repr_of(const TraceStats& stats) {
  return c10::str("TraceStats(recorded_ops=", stats.recorded_ops, ", live_nodes=", stats.live_nodes,
                  ", saved_bytes=", stats.saved_bytes, ", recomputed_ops=", stats.recomputed_ops,
                  ", recomputed_bytes=", stats.recomputed_bytes, ", replayed_bytes=", stats.replayed_bytes,
                  ", verified_results=", stats.verified_results, ", peak_bytes=", stats.peak_bytes,
                  ", copied_bytes=", stats.copied_bytes, ", evicted_values=", stats.evicted_values,
                  ", evicted_bytes=", stats.evicted_bytes, ", packed_values=", stats.packed_values,
                  ", offloaded_bytes=", stats.offloaded_bytes, ", not_offloaded_bytes=", stats.not_offloaded_bytes,
                  ")");
}

void add_trace(py::module_& module) {
  py::class_<TraceStats>(module, "TraceStats",
                         "What a region has recorded and holds. Bytes are of whole storages, each counted once.")
      .def_readonly("recorded_ops", &TraceStats::recorded_ops, "Ops seen by the region, views included.")
      .def_readonly("live_nodes", &TraceStats::live_nodes, "Recorded calls that something still needs.")
      .def_readonly("saved_bytes", &TraceStats::saved_bytes,
                    "Held for backward now, with the inputs and parameters that ops need.")
      .def_readonly("recomputed_ops", &TraceStats::recomputed_ops, "Ops replayed so far.")
      .def_readonly("recomputed_bytes", &TraceStats::recomputed_bytes, "Bytes of replayed results held now.")
      .def_readonly("replayed_bytes", &TraceStats::replayed_bytes,
                    "Bytes of all results that replays have computed so far.")
      .def_readonly("verified_results", &TraceStats::verified_results,
                    "Replayed results that verify mode has compared with forward's so far.")
      .def_readonly("peak_bytes", &TraceStats::peak_bytes,
                    "The most of saved_bytes and recomputed_bytes together so far.")
      .def_readonly("copied_bytes", &TraceStats::copied_bytes,
                    "Copied so far because an op was about to overwrite a value that was still needed.")
      .def_readonly("evicted_values", &TraceStats::evicted_values, "Values that a memory budget dropped so far.")
      .def_readonly("evicted_bytes", &TraceStats::evicted_bytes, "Bytes of those.")
      .def_readonly("packed_values", &TraceStats::packed_values,
                    "Values that a memory budget packed into a form so far, in place of dropping them.")
      .def_readonly("offloaded_bytes", &TraceStats::offloaded_bytes, "Now in another memory, or on the way there.")
      .def_readonly("not_offloaded_bytes", &TraceStats::not_offloaded_bytes,
                    "Should have been offloaded, but no pinned memory was left.")
      .def("__repr__", &repr_of);
  py::class_<PyTrace> trace(
      module, "Trace",
      "The record of one region, which all its scopes share. It may outlive them and backward, keeps no\n"
      "tensor alive, and may be asked from any thread.");
  is_not_pickled(copy_is_itself(trace))
      .def(
          "stats", [](const PyTrace& trace) { return trace.trace->stats(); }, WithoutGil(),
          "Returns an ac2.TraceStats of this moment.")
      .def(
          "__eq__", [](const PyTrace& a, const PyTrace& b) { return a.trace == b.trace; }, py::is_operator())
      .def("__hash__",
           [](const PyTrace& trace) { return py::hash(py::int_(reinterpret_cast<uintptr_t>(trace.trace.get()))); });
  module.def(
      "explain", [](const PyTrace& trace) { return explain(*trace.trace); }, py::arg("trace"), WithoutGil());
  module.def("explain_held", &explain_held, WithoutGil());
  module.def("summary", &summary_of, WithoutGil());
  module.def(
      "to_dot", [](const PyTrace& trace) { return to_dot(*trace.trace); }, py::arg("trace"), WithoutGil());
  module.def(
      "to_chrome_trace", [](const PyTrace& trace) { return to_chrome_trace(*trace.trace); }, py::arg("trace"),
      WithoutGil());
  module.def(
      "write_report",
      [](const std::vector<PyTrace>& traces, const std::string& path) { write_report(traces_of(traces), path); },
      WithoutGil());
  module.def("live_node_count", &live_node_count, WithoutGil());
}

void add_options(py::module_& module) {
  const OffloadOptions defaults;
  py::class_<OffloadOptions>(
      module, "OffloadOptions",
      R"(How results that policies decide to offload leave the device and come back. All numbers are bytes.

Args:
    min_bytes: results of fewer bytes stay on the device.
    inputs: offloads what the region takes from outside for backward too, but leaves that require a gradient.
    read_ahead_bytes: the most bytes of the device for values that were copied back ahead of their use.
    in_flight_bytes: the most bytes that stay on the device because their copy is not done.
    max_pinned_bytes: the most pinned memory of the process for values of one device.)")
      .def(py::init([](int64_t min_bytes, bool inputs, int64_t read_ahead_bytes, int64_t in_flight_bytes,
                       int64_t max_pinned_bytes) {
             for (const int64_t bytes : {min_bytes, read_ahead_bytes, in_flight_bytes, max_pinned_bytes}) {
               if (bytes < 0) {
                 throw py::value_error(
                     c10::str("OffloadOptions was given ", bytes, "; expected numbers of bytes, 0 or more."));
               }
             }
             return OffloadOptions{.min_bytes = min_bytes,
                                   .inputs = inputs,
                                   .read_ahead_bytes = read_ahead_bytes,
                                   .in_flight_bytes = in_flight_bytes,
                                   .max_pinned_bytes = max_pinned_bytes};
           }),
           py::kw_only(), py::arg("min_bytes") = defaults.min_bytes, py::arg("inputs") = defaults.inputs,
           py::arg("read_ahead_bytes") = defaults.read_ahead_bytes,
           py::arg("in_flight_bytes") = defaults.in_flight_bytes,
           py::arg("max_pinned_bytes") = defaults.max_pinned_bytes)
      // So that a module that was wrapped with one can be copied and pickled.
      .def(py::pickle(
          [](const OffloadOptions& options) {
            return py::make_tuple(options.min_bytes, options.inputs, options.read_ahead_bytes, options.in_flight_bytes,
                                  options.max_pinned_bytes);
          },
          [](const py::tuple& state) {
            return OffloadOptions{.min_bytes = state[0].cast<int64_t>(),
                                  .inputs = state[1].cast<bool>(),
                                  .read_ahead_bytes = state[2].cast<int64_t>(),
                                  .in_flight_bytes = state[3].cast<int64_t>(),
                                  .max_pinned_bytes = state[4].cast<int64_t>()};
          }))
      .def_readonly("min_bytes", &OffloadOptions::min_bytes)
      .def_readonly("inputs", &OffloadOptions::inputs)
      .def_readonly("read_ahead_bytes", &OffloadOptions::read_ahead_bytes)
      .def_readonly("in_flight_bytes", &OffloadOptions::in_flight_bytes)
      .def_readonly("max_pinned_bytes", &OffloadOptions::max_pinned_bytes);
}

// A tensor hands out its pointer. Anything that is no tensor is none of ours, so the caller raises its own error.
template <void (*tell)(const at::Tensor&)>
void tell_of_pointer(py::handle object) {
  if (live_node_count() == 0 || !THPVariable_Check(object.ptr())) {
    return;
  }
  const at::Tensor tensor = THPVariable_Unpack(object.ptr());
  if (BeingPacked::is(tensor)) {
    return;
  }
  const py::gil_scoped_release no_gil;
  tell(tensor);
}

void add_tensors(py::module_& module) {
  module.def("tag_with_policy", [](const at::Tensor& tensor, const py::object& decision) {
    const PolicyDecision made = to_decision(decision, "The decision for a tensor");
    const py::gil_scoped_release no_gil;
    tag_with_policy(tensor, made);
  });
  module.def("expose", &tell_of_pointer<&expose>);
  module.def("before_pointer", &tell_of_pointer<&internal::before_pointer>);
  module.def("before_capsule", &tell_of_pointer<&internal::before_capsule>);
  module.def("before_unseen_write", &tell_of_pointer<&internal::before_unseen_write>);
  module.def("before_storage_is_shared", [](py::handle storage) {
    if (live_node_count() > 0 && torch::isStorage(storage.ptr())) {
      const c10::Storage shared = torch::createStorage(storage.ptr());
      const py::gil_scoped_release no_gil;
      internal::before_unseen_write_to(shared);
    }
  });
  module.def("note_early_count", [](const at::Tensor& tensor) { internal::note_early_count(tensor); });
  module.def("manage_storage", [](const at::Tensor& tensor, std::string name, bool is_out_of_date) {
    with_value_errors([&] { internal::manage_storage(tensor, std::move(name), is_out_of_date); });
  });
  module.def("manage_data", [](const at::Tensor& tensor, std::string name, bool has_gatherer) {
    with_value_errors([&] { internal::manage_data(tensor, std::move(name), has_gatherer); });
  });
  // `gather` lives as long as the process.
  module.def("set_gatherer", [](py::object gather) {
    internal::set_gatherer([held = HeldObject(std::move(gather))](const std::vector<at::Tensor>& tensors) {
      const py::gil_scoped_acquire gil;
      calling_python([&] { held.get()(tensors); });
    });
  });
  module.def("set_gatherer_communicates", &internal::set_gatherer_communicates);
  module.def("save_at_boundary", &internal::save_at_boundary, WithoutGil());
  // The very object that was given, with what Python has put on it.
  module.def("name_tensor", [](py::object tensor, const std::string& name) {
    const at::Tensor named = THPVariable_Unpack(tensor.ptr());
    with_value_errors([&] {
      TORCH_CHECK(!name.empty(), "name_tensor was given an empty name. A name is what policies know the tensor by.");
    });
    {
      const py::gil_scoped_release no_gil;
      name_tensor(named, name);
    }
    return tensor;
  });
}

}  // namespace

void add_scope(py::module_& module) {
  add_trace(module);
  add_options(module);
  add_tensors(module);
  py::class_<PyScope>(module, "Scope")
      .def(py::init(&open_scope))
      .def("close", &PyScope::close, WithoutGil())
      // A copy, because a reference would keep the scope alive, and open if Ctrl-C has kept it from being closed.
      .def_property_readonly("trace", &PyScope::trace, py::return_value_policy::copy);
  PyGuard<DisableCheckpointing>::add(
      module, "DisableCheckpointing",
      "With it, ops run as if no region were open: they are not recorded, and autograd saves as it always\n"
      "does. Of the calling thread.");
  PyGuard<RecomputeScope>::add(
      module, "RecomputeScope",
      "A block inside a region whose ops are all recomputed (MUST_RECOMPUTE). Outside a region it does nothing.");
  PyGuard<SaveScope>::add(module, "SaveScope",
                          "A block inside a region of which all that backward needs is saved (MUST_SAVE). Outside a "
                          "region it does nothing.");
  PyGuard<internal::CompilerTracing>::add(module, "CompilerTracing", "While a compiler traces: nothing is recorded.");
  module.def("is_checkpoint_enabled", &is_checkpoint_enabled, "Whether a region is open on this thread.");
  // By its name: pybind11's class of a set of keys is known to those alone who were built by the same compiler.
  module.def("key_of_regions", [] {
    const c10::DispatchKeySet keys = internal::keys_of_regions();
    return keys.empty() ? std::nullopt : std::optional<std::string>(c10::toString(keys.highestPriorityTypeId()));
  });
  module.def("is_recomputing", &is_recomputing, "Whether an op is being replayed on this thread.");
}

}  // namespace ac2::python
