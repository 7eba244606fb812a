// Checkpointing switched on for parts of a finished model, without a change to its code.
//
//   ac2::nn::apply_checkpointing(model, {.modules = {ac2::nn::ModuleSelector("blocks.*").every(2)}});
//   ac2::nn::apply_checkpointing(model, {.modules =
//   {ac2::nn::ModuleSelector::type<torch::nn::TransformerEncoderLayer>()},
//                                        .policy = ac2::policies::save_compute_intensive()});
//
// LibTorch's C++ modules have no forward hooks, and forward() is not virtual: only calls that go through something that
// can be exchanged are reached. These are
//   - entries of a torch::nn::Sequential, and of classes derived from it, when the Sequential's own forward() runs
//   them;
//   - `encoder` and `decoder` of torch::nn::Transformer, and `norm` of its coders;
//   - the layers of a TransformerEncoder or TransformerDecoder that is itself one of the two above;
//   - Checkpointed<M> in the model's code, wherever it is: its policy and options are set, and it is switched on.
// Not reached is what C++ code calls by its type: members of a module (`fc1->forward(x)`), entries of a ModuleList or
// ModuleDict, what is inside LibTorch's own modules, and the model itself. Declare such a module as Checkpointed<M>, or
// open a PolicyScope around the call. Asking for one is an error that names it.
//
// The modules themselves stay what they are: names, parameters, archives, modes, ptr() and operator[] of a Sequential.
// Only Sequential::at<M>(i) and ptr<M>(i) of an entry that is checkpointed throw; say ptr(i)->as<M>(). Clones keep it.
// Threads: not beside a forward of the model.
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

namespace ac2::nn {

struct CheckpointSpec {
  // A module that any of these picks is checkpointed.
  std::vector<ModuleSelector> modules;
  Policy policy = "recompute_all";
  CheckpointOptions options = {};
  // Leaves out what cannot be reached; what was reached is returned.
  bool skip_unreachable = false;
};

// Returns the names of the modules that are checkpointed by it, in the order of named_modules(). A module that was
// already is given the new policy and options. Throws c10::Error, and changes nothing, if a selector picks nothing or a
// module cannot be reached.
std::vector<std::string> apply_checkpointing(torch::nn::Module& model, const CheckpointSpec& spec);

template <class M>
std::vector<std::string> apply_checkpointing(const std::shared_ptr<M>& model, const CheckpointSpec& spec) {
  TORCH_CHECK(model != nullptr, "apply_checkpointing was given an empty module. Make the model first.");
  return apply_checkpointing(static_cast<torch::nn::Module&>(*model), spec);
}

template <class M>
std::vector<std::string> apply_checkpointing(const torch::nn::ModuleHolder<M>& model, const CheckpointSpec& spec) {
  return apply_checkpointing(model.ptr(), spec);
}

// What checkpoints the module of that name now, to read its last_trace() or to change its settings; null if nothing
// does. Valid as long as the module is checkpointed.
Checkpointing* find_checkpointing(torch::nn::Module& model, const std::string& name);

// Undoes apply_checkpointing for the whole model. A Checkpointed<M> of the model's code is switched off.
void remove_checkpointing(torch::nn::Module& model);

}  // namespace ac2::nn
