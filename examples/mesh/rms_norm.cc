#include "examples/mesh/rms_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <numeric>
#include <vector>

namespace gpt {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight, double epsilon) {
    const at::Tensor wide = x.to(at::kFloat);
    const at::Tensor scale = (wide.square().mean(-1, /*keepdim=*/true) + epsilon).rsqrt();
    context->save_for_backward({x, weight, scale});
    return (wide * scale).to(x.scalar_type()) * weight;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &scale = saved[2];
    const at::Tensor normed = x.to(at::kFloat) * scale;
    const at::Tensor wide = gradients[0].to(at::kFloat);
    const at::Tensor scaled = wide * weight;
    std::vector<int64_t> tokens(x.dim() - 1);
    std::iota(tokens.begin(), tokens.end(), 0);
    return {((scaled - normed * (scaled * normed).mean(-1, /*keepdim=*/true)) * scale).to(x.scalar_type()),
            (wide * normed).sum(tokens).to(weight.scalar_type()),
            {}};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  return RmsNorm::apply(x, weight, epsilon);
}

}  // namespace gpt
