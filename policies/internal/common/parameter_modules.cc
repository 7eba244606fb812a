#include "policies/internal/common/parameter_modules.h"

#include <c10/util/Exception.h>

#include "ac2/internal/libtorch/for_each_tensor.h"
#include "ac2/internal/modules/module_path.h"

namespace ac2::policies::internal {

ParameterModules::ParameterModules(const torch::OrderedDict<std::string, at::Tensor>& named_parameters)
    : model_(&find_or_add("")) {
  TORCH_CHECK(
      !named_parameters.is_empty(),
      "by_module was given no parameter, by which it knows modules. Give it what named_parameters() of the model "
      "returns, or leave it out.");
  for (const auto& item : named_parameters) {
    TORCH_CHECK(item.value().defined() && item.value().has_storage(), "by_module: the parameter \"", item.key(),
                "\" has no memory by which ops that take it could be known.");
    const c10::Storage& storage = item.value().storage();
    // A tensor that is registered at two places is the first one's.
    parameters_.try_emplace(
        storage.unsafeGetStorageImpl(),
        Parameter{storage.getWeakStorageImpl(), &find_or_add(ac2::internal::parent_of(item.key()))});
  }
  for (const auto& [path, module] : modules_) {
    known_.push_back({path, ""});
  }
}

const ParameterModules::Module& ParameterModules::find_or_add(const std::string& path) {
  const auto [found, is_new] = modules_.try_emplace(path, Module{path});
  Module& module = found->second;
  if (is_new) {
    module.around = path.empty() ? &module : &find_or_add(ac2::internal::parent_of(path));
  }
  return module;
}

const ParameterModules::Module* ParameterModules::of(const OpContext& op) const {
  const Module* module = nullptr;
  ac2::internal::for_each_tensor(op.inputs(), [&](const at::Tensor& tensor) {
    if (module != nullptr || !tensor.defined() || !tensor.has_storage()) {
      return;
    }
    const auto found = parameters_.find(tensor.storage().unsafeGetStorageImpl());
    // The address of a storage that is gone may be another one's.
    if (found != parameters_.end() && !found->second.storage.expired()) {
      module = found->second.module;
    }
  });
  return module;
}

}  // namespace ac2::policies::internal
