// The backward of an output that the program does not keep.
//
//   const BackwardLater backward(stage.forward(input, targets, around_layer));
//   …
//   backward.run(gradient);      // adds to the gradients of parameters and inputs
//
// Threads: as those of LibTorch's engine.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <vector>

namespace gpt {

class BackwardLater {
 public:
  explicit BackwardLater(const at::Tensor& output);

  // Of the output, and so of its gradient.
  const std::vector<int64_t>& sizes() const { return sizes_; }
  const at::TensorOptions& options() const { return options_; }
  // Once.
  void run(at::Tensor gradient) const;

 private:
  torch::autograd::Edge end_;
  std::vector<int64_t> sizes_;
  at::TensorOptions options_;
};

}  // namespace gpt
