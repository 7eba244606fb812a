#include "python/binding/modules.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <string>
#include <vector>

#include "ac2/nn/module_selector.h"

namespace ac2::python {

void add_modules(pybind11::module_& module) {
  // A pattern looks at names alone, so that one module stands for all.
  module.def(
      "match_names",
      [](const std::string& pattern, const std::vector<std::string>& names) -> std::vector<size_t> {
        const torch::nn::Module any("any");
        return nn::ModuleSelector(pattern).select(names, {names.size(), &any});
      },
      pybind11::arg("pattern"), pybind11::arg("names"));
}

}  // namespace ac2::python
