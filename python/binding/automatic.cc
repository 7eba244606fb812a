#include "python/binding/automatic.h"

#include <pybind11/stl.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ac2/internal/automatic/closing_words.h"
#include "ac2/internal/automatic/held_places.h"
#include "ac2/internal/automatic/settings.h"
#include "ac2/internal/budget/budget.h"
#include "ac2/internal/region/budget_access.h"
#include "ac2/internal/region/resting.h"
#include "ac2/memory_budget.h"

namespace ac2::python {

namespace py = pybind11;

namespace {

using Places = std::vector<std::pair<std::string, int64_t>>;

const char* name_of(internal::BudgetSetting::Kind kind) {
  using Kind = internal::BudgetSetting::Kind;
  switch (kind) {
    case Kind::kWhateverFits:
      return "auto";
    case Kind::kStrict:
      return "strict";
    case Kind::kPeak:
      return "peak";
    case Kind::kSoft:
      return "soft";
  }
  return "";
}

Places to_pairs(const std::vector<internal::ClosingFigures::Place>& held) {
  Places places;
  for (const auto& [where, bytes] : held) {
    places.emplace_back(where, bytes);
  }
  return places;
}

void set_places(internal::ClosingFigures& figures, const Places& places) {
  figures.held.clear();
  for (const auto& [where, bytes] : places) {
    figures.held.push_back({where, bytes});
  }
}

}  // namespace

void add_automatic(py::module_& module) {
  using internal::ClosingFigures;
  py::class_<ClosingFigures>(module, "ClosingFigures", "What closing_words() speaks of (closing_words.h).")
      .def(py::init<>())
      .def_readwrite("who", &ClosingFigures::who)
      .def_readwrite("budget", &ClosingFigures::budget)
      .def_readwrite("policy", &ClosingFigures::policy)
      .def_readwrite("recorded_ops", &ClosingFigures::recorded_ops)
      .def_readwrite("shortages", &ClosingFigures::shortages)
      .def_readwrite("dropped_values", &ClosingFigures::dropped_values)
      .def_readwrite("narrowed_values", &ClosingFigures::narrowed_values)
      .def_readwrite("recomputed_ops", &ClosingFigures::recomputed_ops)
      .def_readwrite("peak_bytes", &ClosingFigures::peak_bytes)
      .def_readwrite("times_over", &ClosingFigures::times_over)
      .def_readwrite("most_bytes_over", &ClosingFigures::most_bytes_over)
      .def_readwrite("ran_out", &ClosingFigures::ran_out)
      .def_property(
          "held", [](const ClosingFigures& figures) { return to_pairs(figures.held); }, &set_places)
      .def_readwrite("repeated", &ClosingFigures::repeated)
      .def_readwrite("report", &ClosingFigures::report);
  module.def("closing_words", &internal::closing_words);
  module.def("was_needed", &internal::was_needed);
  module.def("let_region_rest", &internal::let_region_rest);
  module.def("held_places", [] {
    const py::gil_scoped_release no_gil;
    return to_pairs(internal::places_that_hold_most());
  });
  module.def("parse_bytes",
             [](const std::string& text, const std::string& name) { return internal::parse_bytes(text, name); });
  module.def("parse_budget", [](const std::string& text, const std::string& name) {
    const internal::BudgetSetting budget = internal::parse_budget(text, name);
    return std::pair(name_of(budget.kind), budget.bytes);
  });
  module.def(
      "shortages", [](const MemoryBudget& budget) { return internal::BudgetAccess::budget(budget)->hurried_drops(); },
      py::call_guard<py::gil_scoped_release>());
}

}  // namespace ac2::python
