// The module of the entries that are about modules.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "ac2/ac2.h"

namespace ac2::test {

// Linear, sin and cos: what is wanted of a Sequential of them is all but the last block's cos.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int64_t dim) : up(register_module("up", torch::nn::Linear(dim, dim))) {}
  at::Tensor forward(const at::Tensor& x) {
    regions += is_checkpoint_enabled() ? 1 : 0;
    return up->forward(x).sin().cos();
  }
  torch::nn::Linear up;
  int regions = 0;  // forwards that ran in one
};
TORCH_MODULE(Block);

}  // namespace ac2::test
