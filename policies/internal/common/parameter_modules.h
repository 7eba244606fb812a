// The modules of a model, by the parameters that ops take.
//
//   const ParameterModules modules(model->named_parameters());
//   modules.of(op);                // the module whose parameter the op takes, or null
//   modules.of(op)->around;        // the one around it
//
// Storages are referred to weakly. Threads: const ParameterModules may be used by many at once.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <map>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/modules/module_stack.h"
#include "ac2/policy.h"

namespace ac2::policies::internal {

class ParameterModules {
 public:
  struct Module {
    std::string path;
    const Module* around = nullptr;  // the model's own is the model
  };

  explicit ParameterModules(const torch::OrderedDict<std::string, at::Tensor>& named_parameters);

  const Module& model() const { return *model_; }
  // That of the first parameter among the op's arguments. Null if there is none.
  const Module* of(const OpContext& op) const;
  // All modules that have a parameter, in them or in one inside.
  const ac2::internal::KnownModules& known() const { return known_; }

 private:
  struct Parameter {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    const Module* module;
  };

  const Module& find_or_add(const std::string& path);

  std::map<std::string, Module> modules_;  // by path; addresses are kept
  absl::flat_hash_map<const c10::StorageImpl*, Parameter> parameters_;
  ac2::internal::KnownModules known_;
  const Module* model_;
};

}  // namespace ac2::policies::internal
