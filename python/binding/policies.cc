#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ac2/policy.h"
#include "policies/internal/common/module_policy.h"
#include "policies/policies.h"
#include "python/binding/copies.h"
#include "python/binding/decisions.h"
#include "python/binding/errors.h"
#include "python/binding/modules.h"
#include "python/binding/python_policy.h"
#include "python/binding/scope.h"

namespace ac2::python {

namespace py = pybind11;

namespace {

std::vector<std::string> op_names(const py::iterable& ops) {
  if (py::isinstance<py::str>(ops)) {
    throw py::type_error("The list of ops is the text " + py::repr(ops).cast<std::string>() +
                         "; expected a list, as [" + py::repr(ops).cast<std::string>() + "].");
  }
  std::vector<std::string> names;
  for (const py::handle op : ops) {
    names.push_back(op_name(op));
  }
  return names;
}

std::vector<std::string> texts(const py::iterable& names) {
  if (py::isinstance<py::str>(names)) {
    throw py::type_error("The list of names is the text " + py::repr(names).cast<std::string>() +
                         "; expected a list, as [" + py::repr(names).cast<std::string>() + "].");
  }
  std::vector<std::string> all;
  for (const py::handle name : names) {
    if (!py::isinstance<py::str>(name)) {
      throw py::type_error("A name is " + py::repr(name).cast<std::string>() +
                           "; expected a text, as name_tensor() was given.");
    }
    all.push_back(name.cast<std::string>());
  }
  return all;
}

using NamesPolicy = Policy (*)(const std::vector<std::string>&);

// A policy is made with wrong arguments or not at all.
template <class Make>
Policy make(Make&& make_policy) {
  return with_value_errors(std::forward<Make>(make_policy));
}

void def_names(py::module_& module, const char* name, NamesPolicy make_policy, const char* doc) {
  module.def(
      name, [=](const py::iterable& names) { return make([&] { return make_policy(texts(names)); }); },
      py::arg("names"), doc);
}

void def_ops(py::module_& module, const char* name, NamesPolicy make_policy, const char* doc) {
  module.def(
      name, [=](const py::iterable& ops) { return make([&] { return make_policy(op_names(ops)); }); }, py::arg("ops"),
      doc);
}

void add_parametrised(py::module_& module) {
  def_ops(
      module, "save_ops", &policies::save_ops,
      "Saves the results of the listed ops (MUST_SAVE) and recomputes all others.\n\n"
      "Args:\n    ops: names and patterns such as \"aten::mm\", \"aten::*mm*\", torch.ops.aten.mm (every overload) or\n"
      "        torch.ops.aten.mm.default (that one).\n\n"
      "Raises:\n    ValueError: for a name that no operator has; it suggests the nearest.");
  def_ops(module, "recompute_ops", &policies::recompute_ops,
          "Recomputes the listed ops and saves whatever else backward needs. `ops` as in save_ops().");
  def_ops(
      module, "offload_ops", &policies::offload_ops,
      "Saves the results of the listed ops in the host's memory and recomputes all others. `ops` as in save_ops().");
  module.def(
      "quantize_ops",
      [](const py::iterable& ops, int64_t bits, uint64_t seed) {
        return make([&] { return policies::quantize_ops(op_names(ops), bits, {.seed = seed}); });
      },
      py::arg("ops"), py::arg("bits"), py::kw_only(), py::arg("seed") = 0,
      "Saves the results of the listed ops in 8, 4 or 1 bit a number and recomputes all others. Gradients change:\n"
      "docs/quantisation.md has the bound.");
  module.def(
      "narrow_ops",
      [](const py::iterable& ops, at::ScalarType format) {
        return make([&] { return policies::narrow_ops(op_names(ops), format); });
      },
      py::arg("ops"), py::arg("format"),
      "Saves the results of the listed ops in a narrower format (torch.bfloat16, float16, float8_e4m3fn, float8_e5m2)\n"
      "and recomputes all others. Gradients change: docs/quantisation.md has the bound.");
  module.def(
      "spill_to_file",
      [](const py::object& directory, const py::iterable& ops, int64_t queue_bytes, int64_t file_bytes) {
        const auto path = py::module_::import("os").attr("fspath")(directory).cast<std::string>();
        return make([&] {
          return policies::spill_to_file(path, op_names(ops), {.queue_bytes = queue_bytes, .file_bytes = file_bytes});
        });
      },
      py::arg("directory"), py::arg("ops"), py::kw_only(), py::arg("queue_bytes") = int64_t{64} << 20,
      py::arg("file_bytes") = int64_t{256} << 20,
      "Saves the results of the listed ops in files of `directory` (which have no name) and recomputes all others.");
  module.def(
      "by_size", [](int64_t min_bytes) { return make([&] { return policies::by_size(min_bytes); }); },
      py::arg("min_bytes"), "Saves results of fewer bytes and recomputes larger ones.");
  module.def(
      "every_nth",
      [](int64_t n, const std::optional<py::iterable>& ops) {
        return make([&] { return ops ? policies::every_nth(n, op_names(*ops)) : policies::every_nth(n); });
      },
      py::arg("n"), py::arg("ops") = py::none(),
      "Saves every nth result, of all ops or of the listed ones, and recomputes those between.");
}

void add_by_name(py::module_& module) {
  def_names(module, "save_only_these_names", &policies::save_only_these_names,
            "Saves what ac2.name_tensor() gave one of these names, and recomputes all else.");
  def_names(module, "save_any_names_but_these", &policies::save_any_names_but_these,
            "Saves named tensors but these, and recomputes all else.");
  def_names(module, "save_anything_except_these_names", &policies::save_anything_except_these_names,
            "Recomputes what has one of these names, and saves whatever else backward needs.");
  def_names(module, "recompute_these_names", &policies::recompute_these_names,
            "Recomputes, as a MUST, what has one of these names, and saves whatever else backward needs.");
  def_names(module, "offload_these_names", &policies::offload_these_names,
            "Offloads what has one of these names, and recomputes all else.");
  module.def(
      "save_and_offload_only_these_names",
      [](const py::iterable& saved, const py::iterable& offloaded) {
        return make([&] { return policies::save_and_offload_only_these_names(texts(saved), texts(offloaded)); });
      },
      py::arg("names_which_can_be_saved"), py::arg("names_which_can_be_offloaded"),
      "Saves the first names, offloads the second, and recomputes all else.");
}

void add_composed(py::module_& module) {
  module.def(
      "first_of",
      [](const py::args& listed) {
        std::vector<Policy> all;
        py::list held;
        const py::object as_policy = py::module_::import("ac2._policy").attr("as_policy");
        const bool is_list =
            listed.size() == 1 && (py::isinstance<py::list>(listed[0]) || py::isinstance<py::tuple>(listed[0]));
        for (const py::handle policy :
             is_list ? py::reinterpret_borrow<py::iterable>(listed[0]) : py::iterable(listed)) {
          held.append(as_policy(policy));
          all.push_back(held[held.size() - 1].cast<Policy>());
        }
        return holding(make([&] { return policies::first_of(std::move(all)); }), held);
      },
      "first_of(a, b, ...) or first_of([a, b, ...]): the first policy that insists (a MUST) decides; if all prefer, "
      "the\n"
      "last one's preference counts.");
  module.def(
      "save_from_both_policies",
      [](const py::object& first, const py::object& second) {
        const py::object as_policy = py::module_::import("ac2._policy").attr("as_policy");
        const py::tuple held = py::make_tuple(as_policy(first), as_policy(second));
        auto a = held[0].cast<Policy>();
        auto b = held[1].cast<Policy>();
        return holding(make([&] { return policies::save_from_both_policies(std::move(a), std::move(b)); }), held);
      },
      py::arg("first"), py::arg("second"), "Saves what either of two policies saves.");
  module.def(
      "per_op_override",
      [](const py::object& policy, const py::object& overrides) {
        std::vector<std::pair<std::string, PolicyDecision>> entries;
        const py::iterable items = py::isinstance<py::dict>(overrides)
                                       ? py::iterable(overrides.attr("items")())
                                       : py::reinterpret_borrow<py::iterable>(overrides);
        for (const py::handle item : items) {
          const auto entry = item.cast<std::pair<py::object, py::object>>();
          const std::string name = op_name(entry.first);
          entries.emplace_back(name, to_decision(entry.second, "per_op_override: the decision for " + name));
        }
        const py::object held = py::module_::import("ac2._policy").attr("as_policy")(policy);
        auto base = held.cast<Policy>();
        return holding(make([&] { return policies::per_op_override(std::move(base), entries); }), held);
      },
      py::arg("policy"), py::arg("overrides"),
      "A policy with other decisions for single ops: {op: decision}, or a list of such pairs, of which the first "
      "counts.");
}

std::string quoted(py::handle object) {
  return py::repr(object).cast<std::string>();
}

// The pairs of a mapping or of a list of pairs.
std::vector<std::pair<std::string, PolicyDecision>> module_rules(const py::object& rules) {
  const char* const expected =
      "; expected {pattern: decision}, such as {\"layers.*.mlp\": True}, or a list of such pairs.";
  const bool is_mapping = py::hasattr(rules, "items");
  if (py::isinstance<py::str>(rules) || (!is_mapping && !py::isinstance<py::iterable>(rules))) {
    throw py::type_error("by_module was given " + quoted(rules) + expected);
  }
  std::vector<std::pair<std::string, PolicyDecision>> all;
  const py::iterable items =
      is_mapping ? py::iterable(rules.attr("items")()) : py::reinterpret_borrow<py::iterable>(rules);
  for (const py::handle item : items) {
    if (!(py::isinstance<py::tuple>(item) || py::isinstance<py::list>(item)) || py::len(item) != 2) {
      throw py::type_error("by_module: a rule is " + quoted(item) + expected);
    }
    const py::object pattern = item[py::int_(0)], decision = item[py::int_(1)];
    if (!py::isinstance<py::str>(pattern)) {
      throw py::type_error("by_module: a pattern is " + quoted(pattern) +
                           "; expected a text, such as \"layers.*.mlp :: aten.gelu\".");
    }
    all.emplace_back(pattern.cast<std::string>(),
                     to_decision(decision, "by_module: the decision for " + quoted(pattern)));
  }
  return all;
}

void add_by_module(py::module_& module) {
  module.def(
      "by_module",
      [](const py::object& rules, const py::object& model) {
        const std::vector<std::pair<std::string, PolicyDecision>> all = module_rules(rules);
        const py::module_ calls = py::module_::import("ac2._module_calls");
        if (model.is_none()) {
          Policy policy = make([&] { return policies::by_module(all); });
          calls.attr("watch")();
          return policy;
        }
        const auto [number, known] = calls.attr("given_model")(model)
                                         .cast<std::pair<int64_t, std::vector<std::pair<std::string, std::string>>>>();
        Policy policy =
            make([&, number = number] { return policies::internal::by_module_of(all, number, known_modules(known)); });
        calls.attr("watch")();
        return policy;
      },
      py::arg("rules"), py::kw_only(), py::arg("model") = py::none(),
      "Decides by the module in which an op runs: the first rule that matches counts.\n\n"
      "Args:\n    rules: {pattern: decision} in order, or a list of pairs. A pattern is a path "
      "(\"layers.*.attention.wo\"; "
      "'*'\n        and '?' within a component, \"**\" for any number of components, \"\" for the model itself) or a "
      "class\n        (\"LlamaMLP\"), and optionally \" :: \" and an op (\"layers.*.mlp :: aten.gelu\"). It matches "
      "what runs in\n        the module or in one inside. Ops that no rule matches are recomputed (PREFER_RECOMPUTE).\n"
      "    model: the model that paths are relative to. Without one it is the outermost module that is called.\n\n"
      "Raises:\n    ValueError: for a malformed pattern, one that is there twice, an op that there is not, and, with "
      "model=,\n"
      "        a pattern that matches no module of it; the nearest names are suggested.\n"
      "    TypeError: for a wrong decision, or a model that is none.\n\n"
      "The first such policy installs hooks on the calls of all modules, which stay (about 7 us a call).");
}

}  // namespace

void add_policies(py::module_& module) {
  py::class_<Policy> policy(
      module, "Policy", py::dynamic_attr(),  // see holding()
      "A policy of the runtime's. Made by the functions of ac2.policies; a name, a callable or a list of ops\n"
      "serves wherever a policy is taken.");
  is_not_pickled(copy_is_itself(policy))
      .def_property_readonly("name", &Policy::name, "What reports call it.")
      .def("__repr__", [](const Policy& policy) {
        return "<ac2 policy " + (policy.name().empty() ? std::string("without a name") : policy.name()) + ">";
      });
  py::module_ made = module.def_submodule("policies");
  for (const std::string& name : policies::policy_names()) {
    made.def(
        name.c_str(), [name] { return Policy(name); },
        ("The policy \"" + name + "\". See the table of ac2.policies.").c_str());
  }
  add_parametrised(made);
  add_by_name(made);
  add_composed(made);
  add_by_module(made);
  module.def("policy_names", &policies::policy_names,
             "The names of the policies without parameters, in the order in which help should list them.");
  module.def("compute_intensive_ops", &policies::compute_intensive_ops,
             "The ops that save_compute_intensive() saves, as save_ops() takes them.");
  module.def("slow_ops", &policies::slow_ops, "The ops that speed() saves, as save_ops() takes them.");
  module.def("policy_by_name", [](const std::string& name) { return make([&] { return Policy(name); }); });
  module.def("constant_policy", &constant_policy);
  module.def("callable_policy", &callable_policy);
  module.def("by_operator_policy", &by_operator_policy);
  module.def("operator_decisions", &operator_decisions);
}

}  // namespace ac2::python
