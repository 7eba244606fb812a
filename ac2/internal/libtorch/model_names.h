// The names of the parameters of models that a program in C++ has shown to ac2 (apply_checkpointing(), by_module()), so
// that reports and errors can name them.
//
//   note_model(model.named_parameters());
//   for (const auto& [storage, name] : model_names()) …
//
// Parameters are referred to weakly, and by themselves: Module::to() gives them other storages. Threads: any.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <string>

#include "ac2/internal/libtorch/host_language.h"

namespace ac2::internal {

// A parameter that has a name already has this one from now on.
void note_model(const torch::OrderedDict<std::string, at::Tensor>& named_parameters);
// Of the parameters that live.
StorageNames model_names();

}  // namespace ac2::internal
