#include "tests/random/functions.h"

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <stdexcept>

#include "tests/support/regions.h"

namespace ac2::test {

namespace {

class Wave : public torch::autograd::Function<Wave> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    const at::Tensor sine = x.sin();
    context->save_for_backward({x, sine});
    return sine * 0.5;
  }
  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    const Tensors saved = context->get_saved_variables();
    // Of the intermediate nothing but the sign of its square: its own derivative is zero.
    return {gradients[0] * saved[0].cos() * 0.5 * (saved[1].detach().square() + 1).sign()};
  }
};

class Damp : public torch::autograd::Function<Damp> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, at::Tensor x) {
    x.mul_(0.75);
    context->mark_dirty({x});
    // A view that is written and saved is part of a circle of autograd's own nodes, which leaks without regions too.
    if (!x.is_view()) context->save_for_backward({x});
    return x;
  }
  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    at::Tensor gradient = gradients[0] * 0.75;
    for (const at::Tensor& written : context->get_saved_variables()) gradient = gradient + written.detach() * 0.125;
    return {gradient};
  }
};

at::Tensor gradient(const at::Tensor& of, const at::Tensor& input, bool retain_graph, bool create_graph) {
  try {
    const at::Tensor found =
        torch::autograd::grad({of.sum()}, {input}, {}, retain_graph, create_graph, /*allow_unused=*/true)[0];
    return found.defined() ? found : at::zeros_like(input);
  } catch (const c10::Error& error) {
    throw std::runtime_error(error.what_without_backtrace());
  }
}

}  // namespace

at::Tensor whole(const at::Tensor& tensor) {
  const at::Tensor real = at::isFloatingType(tensor.scalar_type()) ? tensor : tensor.to(at::kFloat);
  if (real.sizes() == at::IntArrayRef({4, 4})) return real;
  const at::Tensor row = real.reshape({-1});
  if (row.numel() >= 16) return row.slice(0, 0, 16).view({4, 4});
  return row.slice(0, 0, row.numel() >= 4 ? 4 : 1).expand({4, 4});
}

at::Tensor wave(const at::Tensor& x) {
  return Wave::apply(x);
}

at::Tensor damp_(const at::Tensor& x) {
  try {
    return Damp::apply(x);
  } catch (...) {
    // What a function could not save, because a hook failed, stays with it for good, and this holds the function.
    const DisableCheckpointing plain;
    if (!x.is_leaf() && !x.is_view()) x.detach_();
    throw;
  }
}

at::Tensor slope(const at::Tensor& of, const at::Tensor& input, bool create_graph) {
  return gradient(of, input, /*retain_graph=*/true, create_graph);
}

at::Tensor slope_of_waves(const at::Tensor& of) {
  const at::AutoGradMode grad(true);
  const at::Tensor x = of.detach().requires_grad_();
  return gradient(wave(x.sin()) * x.cos(), x, /*retain_graph=*/false, /*create_graph=*/false);
}

}  // namespace ac2::test
