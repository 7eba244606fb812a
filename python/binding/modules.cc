#include "python/binding/modules.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ac2/internal/modules/module_stack.h"
#include "ac2/nn/module_selector.h"

namespace ac2::python {

namespace py = pybind11;

using internal::CalledModule;
using internal::KnownModules;
using internal::ModuleName;
using internal::ModuleStack;

namespace {

// A class of its own, because pybind11 takes a vector for a list.
struct PyKnownModules {
  std::shared_ptr<const KnownModules> all;
};

}  // namespace

KnownModules known_modules(const std::vector<std::pair<std::string, std::string>>& named) {
  KnownModules known;
  for (const auto& [path, class_name] : named) {
    known.push_back({path, class_name});
  }
  return known;
}

void add_modules(py::module_& module) {
  // A pattern looks at names alone, so that one module stands for all.
  module.def(
      "match_names",
      [](const std::string& pattern, const std::vector<std::string>& names) -> std::vector<size_t> {
        const torch::nn::Module any("any");
        return ModuleSelector(pattern).select(names, {names.size(), &any});
      },
      py::arg("pattern"), py::arg("names"));
  // All modules of a model, by path and class.
  py::class_<PyKnownModules>(module, "KnownModules")
      .def(py::init([](const std::vector<std::pair<std::string, std::string>>& named) {
        return PyKnownModules{std::make_shared<const KnownModules>(known_modules(named))};
      }));
  // A module that may be called, with its name in each model that has one for it.
  py::class_<CalledModule, std::shared_ptr<CalledModule>>(module, "CalledModule")
      .def(py::init([](std::string class_name, const std::vector<std::pair<int64_t, std::string>>& names,
                       const PyKnownModules& all) {
        std::vector<ModuleName> in_models;
        for (const auto& [model, path] : names) {
          in_models.push_back({model, path});
        }
        return std::make_shared<CalledModule>(std::move(class_name), std::move(in_models), all.all);
      }));
  module.def("enter_module",
             [](std::shared_ptr<CalledModule> called) { return ModuleStack::here().enter(std::move(called)); });
  module.def("leave_module", [](size_t depth) { ModuleStack::here().leave(depth); });
}

}  // namespace ac2::python
