// Stretches without gradients: inference mode, no_grad, inputs that require none.
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using InferenceTest = CleanTest;

at::Tensor small_network(const at::Tensor& images, const at::Tensor& weight) {
  at::Tensor mean = at::zeros({4}), variance = at::ones({4});
  at::Tensor y = at::conv2d(images, weight);
  y = at::batch_norm(y, {}, {}, mean, variance, /*training=*/true, 0.1, 1e-5, false);
  y = at::max_pool2d(y.relu_(), 2).flatten(1);
  y[0].add_(mean.sum());
  y = at::linear(y, at::ones({5, y.size(1)}));
  return std::get<0>(at::dropout(y, 0.5, true).softmax(1).sort());
}

TEST_F(InferenceTest, ARegionInsideInferenceModeHoldsNothing) {
  c10::InferenceMode guard;
  at::Tensor images = constant({2, 3, 8, 8}), weight = constant({4, 3, 3, 3});
  at::manual_seed(5);
  at::Tensor expected = small_network(images, weight);
  at::manual_seed(5);
  PolicyScope scope("recompute_all");
  EXPECT_TRUE(same_bits(small_network(images, weight), expected));
  EXPECT_GT(scope.trace()->stats().recorded_ops, 0);
  EXPECT_EQ(scope.trace()->stats().saved_bytes, 0);
  EXPECT_EQ(scope.trace()->stats().live_nodes, 0);
  EXPECT_EQ(scope.trace()->stats().copied_bytes, 0);
}

TEST_F(InferenceTest, ARegionWithoutGradientsHoldsNothing) {
  at::NoGradGuard guard;
  at::Tensor images = sample({2, 3, 8, 8}), weight = sample({4, 3, 3, 3});
  at::manual_seed(5);
  at::Tensor expected = small_network(images, weight);
  at::manual_seed(5);
  PolicyScope scope("recompute_all");
  EXPECT_TRUE(same_bits(small_network(images, weight), expected));
  EXPECT_EQ(scope.trace()->stats().saved_bytes, 0);
  EXPECT_EQ(scope.trace()->stats().live_nodes, 0);
}

TEST_F(InferenceTest, AScopeMayOpenAndCloseInsideAnInferenceStretch) {
  at::Tensor x = sample({4});
  at::Tensor y;
  {
    PolicyScope outer("recompute_all");
    y = x.sin();
    {
      c10::InferenceMode guard;
      PolicyScope inner("recompute_all");
      constant({4}).sin().cos();
    }
    y = y.cos();
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
}

TEST_F(InferenceTest, AnInferenceStretchInsideARegion) {
  // A tensor that was computed without gradients enters the graph as a clone, as PyTorch demands.
  expect_same_gradients_and_replays(
      [](const Tensors& in) {
        at::Tensor scale;
        {
          c10::InferenceMode guard;
          scale = in[1].exp().sum({0});
        }
        return Tensors{(in[0] * scale.clone()).sin()};
      },
      // exp, sum, the clone, the product.
      {sample({3, 4}), constant({3, 4})}, 4);
}

TEST_F(InferenceTest, AStretchWithoutGradientIsReplayed) {
  expect_same_gradients_and_replays(
      [](const Tensors& in) {
        at::Tensor scale;
        {
          at::NoGradGuard guard;
          scale = in[0].sin().cos();
        }
        return Tensors{in[0] * scale};
      },
      {sample({4})}, 2);
}

TEST_F(InferenceTest, AStretchWithoutGradientMayWriteIntoAnInput) {
  expect_same_gradients_and_replays(
      [](const Tensors& in) {
        at::Tensor y = in[0].mul(2).sin();  // needs in[0] times two
        {
          at::NoGradGuard guard;
          in[1].mul_(0.9).add_(y, 0.1);  // an exponential moving average
        }
        return Tensors{y.cos()};
      },
      {sample({4}), constant({4})}, 2);  // the product and sin's result
}

TEST_F(InferenceTest, ParametersThatRequireNoGradientAreHeldOnlyIfNeeded) {
  Stats stats = expect_same_gradients([](const Tensors& in) { return Tensors{at::linear(in[0], in[1], in[2])}; },
                                      {sample({2, 3}), constant({4, 3}), constant({4})});
  EXPECT_EQ(stats.forward.saved_bytes, 4 * 3 * 4);  // the weight, for the input's gradient
}

TEST_F(InferenceTest, GradientsSwitchedOnInsideADisabledStretch) {
  expect_same_gradients_and_replays(
      [](const Tensors& in) {
        at::NoGradGuard off;
        at::Tensor y = in[0].detach().sin();
        at::AutoGradMode on(true);
        return Tensors{(in[0] * y).cos()};
      },
      {sample({4})}, 2);
}

}  // namespace
}  // namespace ac2::test
