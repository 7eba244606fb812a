// Llama's norm as one function of autograd, which keeps its input and a number for each token, as fused kernels do.
// LibTorch's own is, on meta tensors, made of ops of which autograd keeps several results.
#pragma once

#include <ATen/core/Tensor.h>

namespace gpt {

// x / root(mean(x²) + epsilon) * weight, over the last dimension, computed in float.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

}  // namespace gpt
