// The places of a model through which a module is called and which can be exchanged.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>

#include <memory>
#include <string>
#include <vector>

#include "ac2/nn/checkpointing.h"

namespace ac2::internal {

// A submodule, the model itself first. `parent` is a position in the list that this is in, that of the model its own.
struct Submodule {
  std::string name;
  std::shared_ptr<torch::nn::Module> owner;  // null for the model
  torch::nn::Module* module = nullptr;
  size_t parent = 0;
};

// The submodules in the order of named_modules(). A module that is registered at two places is in the list twice.
std::vector<Submodule> submodules(torch::nn::Module& model);

// The AnyModule through which `parent` calls `module`; null if it calls it otherwise.
torch::nn::AnyModule* slot_of(torch::nn::Module& parent, const torch::nn::Module& module);

// How a submodule's forward is reached: null everywhere if it is not.
struct Access {
  CheckpointedModule* checkpointed = nullptr;  // by its own means
  torch::nn::AnyModule* slot = nullptr;        // its own, or its coder's
  bool is_layer = false;                       // a layer of the coder in `slot`
  size_t layer = 0;

  explicit operator bool() const { return checkpointed != nullptr || slot != nullptr; }
};
Access access(const std::vector<Submodule>& all, size_t index);

}  // namespace ac2::internal
