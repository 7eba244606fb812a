// TransformerEncoder and TransformerDecoder with a region around each layer.
//
// LibTorch's forward calls its layers by type, where nothing can come between. This is the same loop
// (torch/csrc/api/src/nn/modules/transformer.cpp), for a coder whose own call is intercepted.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any_value.h>
#include <torch/nn/modules/container/modulelist.h>

#include <cstddef>
#include <map>
#include <vector>

#include "ac2/nn/checkpointing.h"

namespace ac2::internal {

// The layers of exactly TransformerEncoder or TransformerDecoder; null for any other module.
torch::nn::ModuleListImpl* coder_layers(torch::nn::Module& module);

// `arguments` are those of the coder's forward, of which the trailing masks may be missing.
torch::nn::AnyValue forward_coder(torch::nn::Module& coder, std::vector<torch::nn::AnyValue>& arguments,
                                  std::map<size_t, Checkpointing>& layers);

}  // namespace ac2::internal
