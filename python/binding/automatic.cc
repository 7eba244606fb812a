#include "python/binding/automatic.h"

#include <pybind11/stl.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ac2/internal/automatic/process_record.h"
#include "ac2/internal/automatic/settings.h"
#include "ac2/internal/automatic/variables.h"
#include "ac2/internal/bytes/parse_bytes.h"
#include "ac2/internal/region/resting.h"
#include "ac2/memory_budget.h"
#include "python/binding/traces.h"

namespace ac2::python {

namespace py = pybind11;

void add_automatic(py::module_& module) {
  using internal::ProcessRecord;
  using WithoutGil = py::call_guard<py::gil_scoped_release>;
  // Its locks are taken while others wait for the GIL.
  py::class_<ProcessRecord>(module, "ProcessRecord", "What the regions of a process did (process_record.h).")
      .def(py::init([] {
             return std::make_unique<ProcessRecord>(
                 internal::settings_of([](const char* name) { return std::getenv(name); }),
                 ProcessRecord::Language::kPython);
           }),
           WithoutGil())
      .def_property_readonly("policy", [](const ProcessRecord& record) { return record.settings().policy; })
      .def_property_readonly("verify", [](const ProcessRecord& record) { return record.settings().verify; })
      .def_property_readonly("timeline", [](const ProcessRecord& record) { return !record.settings().report.empty(); })
      .def_property_readonly("budget", [](const ProcessRecord& record) { return record.budget(); })
      .def(
          "add", [](ProcessRecord& record, const PyTrace& trace) { record.add(trace.trace); }, WithoutGil())
      .def(
          "forked",
          [](ProcessRecord& record, const std::optional<PyTrace>& own) { record.forked(own ? own->trace : nullptr); },
          WithoutGil())
      .def("note_child", &ProcessRecord::note_child, WithoutGil())
      .def(
          "before_backward",
          [](ProcessRecord& record, const PyTrace& here) { return record.before_backward(*here.trace); }, WithoutGil())
      .def("note_repeated", &ProcessRecord::note_repeated, WithoutGil())
      .def(
          "note_error",
          [](ProcessRecord& record, const std::string& text, bool is_about_memory, const std::string& where) {
            record.note_error(text, is_about_memory, where);
          },
          WithoutGil())
      .def("end", &ProcessRecord::end, WithoutGil());
  module.def("variables", [] {
    namespace names = internal::variables;
    return std::vector<std::string>{names::kBudget, names::kPolicy, names::kReport, names::kVerify, names::kQuiet};
  });
  module.def("let_region_rest", &internal::let_region_rest);
  module.def("parse_bytes",
             [](const std::string& text, const std::string& name) { return internal::parse_bytes(text, name); });
  module.def("check_budget",
             [](const std::string& text, const std::string& name) { internal::parse_budget(text, name); });
}

}  // namespace ac2::python
