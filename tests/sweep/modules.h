// Rows whose function is a module of torch::nn.
#pragma once

#include <torch/nn.h>

#include <tuple>
#include <utility>

#include "tests/sweep/case.h"

namespace ac2::test::sweep {

// A module built outside the region, as a program's are.
template <class Holder, class... Args>
Holder built(Args&&... args) {
  const DisableCheckpointing outside;
  return Holder(std::forward<Args>(args)...);
}

// `results`, and what training the module changes: its parameters' gradients and its buffers.
inline Out trained(const torch::nn::Module& module, Tensors results) {
  for (const at::Tensor& buffer : module.buffers()) results.push_back(buffer);
  return {std::move(results), module.parameters()};
}

// The result of a Holder that is made from `options`, for the first tensor, or for the first two.
template <class Holder, class... Args>
Out call(In t, Args&&... options) {
  Holder module = built<Holder>(std::forward<Args>(options)...);
  return trained(*module, {module->forward(t[0])});
}

template <class Holder, class... Args>
Out call_two(In t, Args&&... options) {
  Holder module = built<Holder>(std::forward<Args>(options)...);
  return trained(*module, {module->forward(t[0], t[1])});
}

}  // namespace ac2::test::sweep
