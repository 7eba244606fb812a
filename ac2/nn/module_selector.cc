#include "ac2/nn/module_selector.h"

#include <c10/util/Exception.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "ac2/internal/modules/module_path.h"

namespace ac2 {

ModuleSelector::ModuleSelector(std::string pattern)
    : predicate_([path = internal::PathPattern(pattern)](const std::string& name, const torch::nn::Module&) {
        return !name.empty() && path.matches(name);
      }),
      description_("named \"" + pattern + "\"") {
  TORCH_CHECK(!pattern.empty(),
              "A ModuleSelector was made from an empty pattern, or from a null pointer. Use \"*\" for every child of "
              "the model, ",
              "\"**\" for every module in it.");
}

ModuleSelector::ModuleSelector(Predicate predicate, std::string description)
    : predicate_(std::move(predicate)), description_(std::move(description)) {
  TORCH_CHECK(
      predicate_ != nullptr,
      "A ModuleSelector was made from an empty function. Give it one that is called with the name of a module and "
      "the module, and says whether to pick it.");
}

ModuleSelector ModuleSelector::every(int64_t n, int64_t first) const {
  TORCH_CHECK(n >= 1 && first >= 0, "ModuleSelector::every(", n, ", ", first,
              ") was called: the step is 1 or more, and the first is 0 or more.");
  ModuleSelector result = *this;
  result.every_ = n;
  result.first_ = first;
  return result;
}

std::string ModuleSelector::description() const {
  return every_ == 1 && first_ == 0 ? description_ : absl::StrCat(description_, ", every(", every_, ", ", first_, ")");
}

std::vector<size_t> ModuleSelector::select(const std::vector<std::string>& names,
                                           const std::vector<const torch::nn::Module*>& modules) const {
  TORCH_CHECK(names.size() == modules.size(), "ModuleSelector::select was given ", names.size(), " names and ",
              modules.size(), " modules. Give it a module for each name.");
  std::vector<size_t> selected;
  int64_t seen = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!predicate_(names[i], *modules[i])) continue;
    const int64_t position = seen++ - first_;
    if (position >= 0 && position % every_ == 0) selected.push_back(i);
  }
  return selected;
}

}  // namespace ac2
