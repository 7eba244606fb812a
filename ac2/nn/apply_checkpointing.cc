#include "ac2/nn/apply_checkpointing.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ac2/internal/libtorch/model_names.h"
#include "ac2/internal/modules/module_stack.h"
#include "ac2/internal/policy_names/plan_policy.h"
#include "ac2/nn/internal/intercept/intercepted_module.h"
#include "ac2/nn/internal/intercept/module_slots.h"

namespace ac2 {
namespace {

using internal::Access;
using internal::InterceptedModule;
using internal::Submodule;

std::string type_of(const torch::nn::Module& module) {
  return c10::demangle(typeid(module).name());
}

// "M's children are: a, b, c"
std::string children_of(const torch::nn::Module& model) {
  std::vector<std::string> names = model.named_children().keys();
  constexpr size_t kShown = 10;
  if (names.size() > kShown) {
    names.resize(kShown);
    names.emplace_back("...");
  }
  return names.empty() ? "The model has no submodules." : "Its children are: " + absl::StrJoin(names, ", ") + ".";
}

std::set<size_t> selected(const std::vector<Submodule>& all, const std::vector<ModuleSelector>& selectors) {
  TORCH_CHECK(!selectors.empty(),
              "apply_checkpointing was given no selector in CheckpointSpec::modules. Name the modules "
              "to checkpoint, such as \"blocks.*\".");
  std::vector<std::string> names;
  std::vector<const torch::nn::Module*> modules;
  for (const Submodule& submodule : all) {
    names.push_back(submodule.name);
    modules.push_back(submodule.module);
  }
  std::set<size_t> result;
  for (const ModuleSelector& selector : selectors) {
    const std::vector<size_t> found = selector.select(names, modules);
    TORCH_CHECK(!found.empty(), "apply_checkpointing found no module ", selector.description(), " in ",
                type_of(*all[0].module), ". ", children_of(*all[0].module),
                " Names are those of named_modules(), types those of the module, not of its holder.");
    result.insert(found.begin(), found.end());
  }
  return result;
}

std::string unreachable(const std::vector<Submodule>& all, size_t index) {
  const Submodule& self = all[index];
  if (index == 0) {
    return absl::StrCat(
        "apply_checkpointing cannot reach the model itself, a ", type_of(*self.module),
        ": the program calls its forward() directly. Use what checkpoint_wrapper(model) returns, or open "
        "a PolicyScope around the call.");
  }
  const Submodule& parent = all[self.parent];
  return absl::StrCat(
      "apply_checkpointing cannot reach '", self.name, "', a ", type_of(*self.module), ": ",
      self.parent == 0 ? "the model" : absl::StrCat("'", parent.name, "'"), ", a ", type_of(*parent.module),
      ", is not known to call it through something that can be exchanged, as Sequential does. Declare it "
      "as ac2::Checkpointed<> in the model's code, put it into a torch::nn::Sequential, open a "
      "PolicyScope around the call, or set CheckpointSpec::skip_unreachable.");
}

Checkpointing* find(const Access& access) {
  if (access.checkpointed != nullptr) return &access.checkpointed->checkpointing();
  InterceptedModule* intercepted = access.slot == nullptr ? nullptr : InterceptedModule::find(*access.slot);
  if (intercepted == nullptr) return nullptr;
  if (!access.is_layer) return intercepted->whole ? &*intercepted->whole : nullptr;
  const auto layer = intercepted->layers.find(access.layer);
  return layer == intercepted->layers.end() ? nullptr : &layer->second;
}

Checkpointing& find_or_make(const Access& access) {
  if (Checkpointing* found = find(access)) return *found;
  InterceptedModule& intercepted = InterceptedModule::intercept(*access.slot);
  return access.is_layer ? intercepted.layers[access.layer] : intercepted.whole.emplace();
}

// Tells every module of the model that may have a region its name, for policies that decide by module. A module that is
// registered at two places has the first one's.
void tell_names(const std::vector<Submodule>& all) {
  auto known = std::make_shared<internal::KnownModules>();
  std::vector<Checkpointing*> told;
  for (size_t i = 0; i < all.size(); ++i) {
    Checkpointing* checkpointing = find(internal::access(all, i));
    if (checkpointing == nullptr || std::find(told.begin(), told.end(), checkpointing) != told.end()) continue;
    told.push_back(checkpointing);
    known->push_back({all[i].name, internal::without_namespaces(all[i].module->name())});
  }
  for (size_t i = 0; i < told.size(); ++i) {
    told[i]->set_module(std::make_shared<const internal::CalledModule>(
        (*known)[i].class_name, std::vector<internal::ModuleName>{{.path = (*known)[i].path}}, known));
  }
}

}  // namespace

std::vector<std::string> apply_checkpointing(torch::nn::Module& model, const CheckpointSpec& spec) {
  const std::vector<Submodule> all = internal::submodules(model);
  std::vector<Access> reached;
  std::vector<std::string> names;
  for (const size_t index : selected(all, spec.modules)) {
    const Access access = internal::access(all, index);
    TORCH_CHECK(access || spec.skip_unreachable, unreachable(all, index));
    if (!access) continue;
    reached.push_back(access);
    names.push_back(all[index].name);
  }
  TORCH_CHECK(
      reached.size() < 2 || internal::planned_step_of(spec.policy) == nullptr,
      "apply_checkpointing was given a plan for ", reached.size(),
      " modules, of which each would follow it from its beginning and hold its bytes. A plan is for the whole of "
      "a step: open one PolicyScope(plan) around it, and give modules a policy or a memory_budget.");
  CheckpointOptions options = spec.options;
  if (const auto budget = options.memory_budget.budget(options.modelled_costs)) {
    options.memory_budget = *budget;  // of a number all modules share one
  }
  for (const Access& access : reached) {
    Checkpointing& checkpointing = find_or_make(access);
    checkpointing.set_policy(spec.policy);
    checkpointing.set_options(options);
    checkpointing.set_on(true);
  }
  tell_names(all);
  internal::note_model(model.named_parameters());
  return names;
}

Checkpointing* find_checkpointing(torch::nn::Module& model, const std::string& name) {
  const std::vector<Submodule> all = internal::submodules(model);
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Submodule& submodule) { return submodule.name == name; });
  TORCH_CHECK(found != all.end(), "find_checkpointing found no module named \"", name, "\" in ", type_of(model), ". ",
              children_of(model));
  return find(internal::access(all, static_cast<size_t>(found - all.begin())));
}

void remove_checkpointing(torch::nn::Module& model) {
  const std::vector<Submodule> all = internal::submodules(model);
  for (size_t i = 0; i < all.size(); ++i) {
    const Access access = internal::access(all, i);
    if (access.checkpointed != nullptr) access.checkpointed->checkpointing().set_on(false);
    if (access.slot != nullptr) InterceptedModule::remove(*access.slot);
  }
}

}  // namespace ac2
