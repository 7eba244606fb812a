// Other features of autograd, in a region.
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/forward_grad.h>

#include <vector>

#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using AutogradTest = CleanTest;

at::Tensor network(const at::Tensor& x) {
  return x.sin().exp().cos().tanh();
}

TEST_F(AutogradTest, BackwardAccumulatesIntoTheGradientsOfLeaves) {
  at::Tensor x = sample({4}), plain = leaf_like(x);
  for (int step = 0; step < 3; ++step) {
    apply_ac_policy_fn(network, "recompute_all", x).sum().backward();
    network(plain).sum().backward();
    EXPECT_TRUE(same_bits(x.grad(), plain.grad())) << step;
  }
}

TEST_F(AutogradTest, CheckpointHoldsTheInputsAloneAndRunsTheFunctionOnce) {
  at::Tensor x = sample({4}), plain = leaf_like(x);
  int calls = 0;
  std::shared_ptr<const Trace> trace;
  const at::Tensor y = checkpoint(
      [&](const at::Tensor& input, double scale) {
        ++calls;
        PolicyScope inner(Policy([](const OpContext&) { return CheckpointPolicy::PREFER_RECOMPUTE; }));
        trace = inner.trace();
        return network(input * scale);
      },
      x, 2.0);
  EXPECT_EQ(trace->stats().saved_bytes, x.nbytes());
  y.sum().backward();
  network(plain * 2.0).sum().backward();
  EXPECT_TRUE(same_bits(x.grad(), plain.grad()));
  EXPECT_EQ(calls, 1);
  EXPECT_GT(trace->stats().recomputed_ops, 0);
}

TEST_F(AutogradTest, BackwardToGivenInputsAlone) {
  at::Tensor x = sample({4}), w = sample({4});
  at::Tensor y;
  {
    PolicyScope scope("recompute_all");
    y = network(x * w);
  }
  y.backward(at::ones({4}), /*retain_graph=*/false, /*create_graph=*/false, at::TensorList({w}));
  EXPECT_FALSE(x.grad().defined());
  EXPECT_TRUE(w.grad().defined());
}

TEST_F(AutogradTest, GradientsOfIntermediateTensors) {
  auto run = [](const at::Tensor& x) {
    at::Tensor middle = x.sin();
    middle.retain_grad();
    network(middle).sum().backward();
    return middle.grad();
  };
  at::Tensor x = sample({4});
  at::Tensor expected = run(x);
  EXPECT_TRUE(same_bits(apply_ac_policy_fn(run, "recompute_all", x), expected));
}

TEST_F(AutogradTest, HooksThatChangeGradients) {
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor middle = in[0].sin();
        middle.register_hook([](const at::Tensor& g) { return g * 2; });
        return Tensors{network(middle)};
      },
      {sample({4})});
}

TEST_F(AutogradTest, ABackwardInsideABackwardOfTheSameTrace) {
  at::Tensor x = sample({4});
  at::Tensor inner_gradient, y, z;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    at::Tensor shared = x.sin().exp();
    z = shared.cos().sin();
    at::Tensor middle = shared.tanh().cos();
    middle.register_hook([&](const at::Tensor& g) {
      inner_gradient = gradient_of(z, x, /*retain_graph=*/true);
      return g;
    });
    y = middle.sin();
  }
  at::Tensor gradient = gradient_of(y, x);
  EXPECT_TRUE(same_bits(gradient, gradient_of(x.sin().exp().tanh().cos().sin(), x)));
  EXPECT_TRUE(same_bits(inner_gradient, gradient_of(x.sin().exp().cos().sin(), x)));
  EXPECT_EQ(trace->stats().recomputed_bytes, 0);
}

// Runs a backward of its own in its backward.
struct NestedBackward : torch::autograd::Function<NestedBackward> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x.sin().exp();
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    at::AutoGradMode enable(true);
    at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_(true);
    return torch::autograd::grad({x.sin().exp()}, {x}, {gradients[0]});
  }
};

TEST_F(AutogradTest, NestedBackwardsDeepInsideOneAnother) {
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor y = in[0];
        for (int i = 0; i < 5; ++i) y = NestedBackward::apply(y.mul(0.5).cos());
        return Tensors{y};
      },
      {sample({4})});
}

TEST_F(AutogradTest, UnusedOutputsOfAFunctionHaveUndefinedGradients) {
  expect_same_gradients(
      [](const Tensors& in) {
        auto [values, indices] = in[0].sin().topk(2);
        Tensors parts = in[1].cos().unbind(0);
        return Tensors{values.exp(), parts[1].tanh()};
      },
      {sample({4}), sample({3, 2})});
}

TEST_F(AutogradTest, AnomalyDetectionFindsNoAnomaly) {
  torch::autograd::AnomalyMode::set_enabled(true);
  expect_same_gradients([](const Tensors& in) { return Tensors{network(in[0])}; }, {sample({4})});
  torch::autograd::AnomalyMode::set_enabled(false);
}

TEST_F(AutogradTest, ForwardModeDerivativesAreTheSame) {
  at::Tensor x = constant({4}), tangent = constant({4});
  auto derivative = [&](bool region) {
    const uint64_t level = torch::autograd::ForwardADLevel::get_next_idx();
    at::Tensor result;
    {
      at::Tensor dual = at::_make_dual(x, tangent, static_cast<int64_t>(level));
      at::Tensor y = region ? apply_ac_policy_fn(network, "recompute_all", dual) : network(dual);
      result = std::get<1>(at::_unpack_dual(y, static_cast<int64_t>(level))).clone();
    }
    torch::autograd::ForwardADLevel::release_idx(level);
    return result;
  };
  at::Tensor expected = derivative(false);
  EXPECT_TRUE(same_bits(derivative(true), expected));
}

TEST_F(AutogradTest, HigherDerivativesInAdjacentRegions) {
  auto third_derivative = [](const std::function<at::Tensor(const at::Tensor&)>& fn, const at::Tensor& x) {
    at::Tensor y = fn(x).sum();
    for (int order = 1; order < 3; ++order) {
      y = torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true)[0].sum();
    }
    return gradient_of(y, x);
  };
  at::Tensor x = sample({4});
  auto regions = [](const at::Tensor& t) {
    return apply_ac_policy_fn(network, "recompute_all", apply_ac_policy_fn(network, "recompute_all", t));
  };
  auto plain = [](const at::Tensor& t) { return network(network(t)); };
  EXPECT_TRUE(same_bits(third_derivative(regions, x), third_derivative(plain, x)));
}

TEST_F(AutogradTest, AGradientPenalty) {
  // The loss contains a gradient, made inside the region and differentiated again.
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor y = in[0].mm(in[1]).tanh();
        at::Tensor g = torch::autograd::grad({y.sum()}, {in[0]}, {}, true, /*create_graph=*/true)[0];
        return Tensors{y.mean() + g.square().sum()};
      },
      {sample({3, 4}), sample({4, 2})});
}

TEST_F(AutogradTest, DetachedInPlaceTensorsAndNewLeaves) {
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor a = in[0].sin();
        a.detach_();
        at::Tensor leaf = in[0].cos().detach().requires_grad_(true);
        at::Tensor inner = torch::autograd::grad({(leaf * a).exp().sum()}, {leaf})[0];
        return Tensors{in[0] * a, (in[0] * inner).sin()};
      },
      {sample({4})});
}

TEST_F(AutogradTest, RequiringAGradientInsideTheRegion) {
  at::Tensor x = constant({4});
  at::Tensor y, made;
  {
    PolicyScope scope("recompute_all");
    made = x.sin().requires_grad_(true);
    y = made.exp().cos();
  }
  at::Tensor plain = x.sin().requires_grad_(true);
  EXPECT_TRUE(same_bits(gradient_of(y, made), gradient_of(plain.exp().cos(), plain)));
}

}  // namespace
}  // namespace ac2::test
