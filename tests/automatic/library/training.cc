#include "tests/automatic/library/training.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdio>
#include <vector>

namespace training {

namespace {

at::Tensor drawn(at::IntArrayRef sizes, at::Generator& generator) {
  return at::randn(sizes, generator, at::kFloat);
}

uint64_t hash_of(const at::Tensor& tensor, uint64_t hash) {
  const auto* const words = static_cast<const uint32_t*>(tensor.const_data_ptr());
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    hash = (hash ^ words[i]) * 1099511628211u;
  }
  return hash;
}

// The first call of one of these in a process takes other kernels of MKL's, with and without ac2, if several threads
// make it at once, be they OpenMP's. So they are called here, on few numbers, before anybody needs their bits.
bool choose_kernels() {
  const c10::NoGradGuard no_grad;
  const at::Tensor few = at::ones({64});
  return few.tanh().add_(few.sin()).add_(few.exp()).defined();
}

}  // namespace

std::string train(const Training& training) {
  static const bool chosen = choose_kernels();
  static_cast<void>(chosen);
  at::Generator generator = at::detail::createCPUGenerator(training.seed);
  std::vector<at::Tensor> weights;
  for (int i = 0; i < training.layers; ++i) {
    weights.push_back(drawn({training.columns, training.columns}, generator).mul_(0.1).requires_grad_());
  }
  const at::Tensor x = drawn({training.rows, training.columns}, generator);
  std::string text;
  uint64_t hash = 14695981039346656037u;
  for (int step = 0; step < training.steps; ++step) {
    at::Tensor y = x;
    for (const at::Tensor& weight : weights) {
      const at::Tensor noise = drawn(y.sizes(), generator);
      y = y + at::gelu(at::mm(y, weight)).sigmoid().mul(noise).tanh_();
    }
    const at::Tensor loss = y.square().mean();
    const std::vector<at::Tensor> gradients = torch::autograd::grad({loss}, weights);
    const c10::NoGradGuard no_grad;
    for (size_t i = 0; i < weights.size(); ++i) {
      hash = hash_of(gradients[i], hash);
      weights[i].sub_(gradients[i], 0.1);
    }
    char number[64];
    std::snprintf(number, sizeof number, "%a ", static_cast<double>(loss.item<float>()));
    text += number;
  }
  return text + std::to_string(hash);
}

}  // namespace training
