// Checkpointing switched on for parts of a finished model, without a change to its code.
//
//   ac2::apply_checkpointing(model, {.modules = {ac2::ModuleSelector("blocks.*").every(2)}});
//   using ac2::ModuleSelector;
//   ac2::apply_checkpointing(model, {.modules = {ModuleSelector::type<torch::nn::TransformerEncoderLayer>()},
//                                        .policy = ac2::policies::save_compute_intensive()});
//
// LibTorch's C++ modules have no forward hooks, and forward() is not virtual. So only those calls are reached that go
// through something that can be exchanged:
//   - entries of a torch::nn::Sequential, and of classes derived from it, that the Sequential's own forward() runs;
//   - `encoder` and `decoder` of torch::nn::Transformer, and `norm` of its coders;
//   - the layers of a TransformerEncoder or TransformerDecoder that is itself one of the two above;
//   - Checkpointed<M> in the model's code, wherever it is: its policy and options are set, and it is switched on.
// Modules that C++ code calls by their type are not reached: members of a module (`fc1->forward(x)`), entries of a
// ModuleList or ModuleDict, what is inside LibTorch's own modules, and the model itself. Declare such a module as
// Checkpointed<M>, or open a PolicyScope around the call. A selector that picks such a module is an error that names
// it.
//
// The modules themselves stay as they are: names, parameters, archives, modes, ptr() and operator[] of a Sequential.
// Only Sequential::at<M>(i) and ptr<M>(i) of a checkpointed entry throw; write ptr(i)->as<M>(). Clones are checkpointed
// too. Threads: these functions must not run while the model's forward does.
#pragma once

#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <string>
#include <vector>

#include "ac2/nn/checkpointing.h"
#include "ac2/nn/module_selector.h"
#include "ac2/policy.h"

namespace ac2 {

struct CheckpointSpec {
  // A module that any of these picks is checkpointed.
  std::vector<ModuleSelector> modules;
  Policy policy = "recompute_all";
  // All modules share the memory budget, a number of bytes too.
  CheckpointOptions options = {};
  // Leaves out modules that cannot be reached instead of throwing. The names that are returned are those reached.
  bool skip_unreachable = false;
};

// Returns the names of the modules that it checkpoints, in the order of named_modules(). A module that was checkpointed
// before takes the new policy and options. Throws c10::Error, and changes nothing, if a selector picks nothing or a
// module cannot be reached.
std::vector<std::string> apply_checkpointing(torch::nn::Module& model, const CheckpointSpec& spec);

template <class M>
std::vector<std::string> apply_checkpointing(const std::shared_ptr<M>& model, const CheckpointSpec& spec) {
  TORCH_CHECK(model != nullptr, "apply_checkpointing was given an empty module. Make the model first.");
  return apply_checkpointing(static_cast<torch::nn::Module&>(*model), spec);
}

template <class M>
std::vector<std::string> apply_checkpointing(const torch::nn::ModuleHolder<M>& model, const CheckpointSpec& spec) {
  return apply_checkpointing(model.is_empty() ? nullptr : model.ptr(), spec);
}

// The settings of the module of that name, for its last_trace() or to change them. Null if the module is not
// checkpointed. The pointer is valid for as long as the module is checkpointed. Throws c10::Error if the model has no
// module of that name.
Checkpointing* find_checkpointing(torch::nn::Module& model, const std::string& name);

// Undoes apply_checkpointing for the whole model. A Checkpointed<M> in the model's code is switched off.
void remove_checkpointing(torch::nn::Module& model);

}  // namespace ac2
