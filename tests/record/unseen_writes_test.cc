// Writes that no version counter is told of: batch norm's running statistics and rrelu's noise. What autograd has saved
// of them follows the write, in regions as without, however the region keeps it.
#include <vector>

#include "ac2/policy.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using UnseenWritesTest = CleanTest;

std::vector<Policy> policies() {
  const SaveWithHooks clones{[](const at::Tensor& t) { return c10::IValue(t.clone()); },
                             [](const c10::IValue& v) { return v.toTensor(); }};
  return {"recompute_all", "must_save_all", Policy::constant(clones)};
}

at::Tensor randomized_relu(const at::Tensor& x, at::Tensor noise) {
  return at::rrelu_with_noise(x, noise, 0.1, 0.4, /*training=*/true);
}

// A value of the region, which has been computed there and could be again, is no longer what the hook on it wants.
TEST_F(UnseenWritesTest, NoiseThatWasComputedInTheRegionIsThatOfTheOp) {
  for (const Policy& policy : policies()) {
    expect_same_gradients([](const Tensors& in) { return Tensors{randomized_relu(in[0].sin(), in[0].detach().cos())}; },
                          {sample({20})}, policy);
  }
}

TEST_F(UnseenWritesTest, NoiseThatIsUsedBeforeAndAfterTheOp) {
  for (const Policy& policy : policies()) {
    expect_same_gradients(
        [](const Tensors& in) {
          const at::Tensor noise = in[0].detach().cos();
          const at::Tensor before = (in[0] * noise).sin();
          const at::Tensor y = randomized_relu(in[0].sin(), noise);
          return Tensors{y, before, (y * noise).sin()};
        },
        {sample({20})}, policy);
  }
}

// Each takes what the last has left, as plain autograd does, which makes of its gradients what it makes of them.
TEST_F(UnseenWritesTest, OneNoiseForTwoOps) {
  for (const Policy& policy : policies()) {
    expect_same_gradients(
        [](const Tensors& in) {
          const at::Tensor noise = in[0].detach().cos();
          return Tensors{randomized_relu(in[0].sin(), noise), randomized_relu(in[0].tanh(), noise)};
        },
        {sample({20})}, policy);
  }
}

TEST_F(UnseenWritesTest, NoiseThatIsTaggedIsStillThatOfTheOp) {
  for (const PolicyDecision& decision :
       {PolicyDecision(CheckpointPolicy::MUST_SAVE), PolicyDecision(CheckpointPolicy::MUST_RECOMPUTE)}) {
    expect_same_gradients(
        [&](const Tensors& in) {
          const at::Tensor noise = in[0].detach().cos();
          tag_with_policy(noise, decision);
          const at::Tensor y = randomized_relu(in[0].sin(), noise);
          return Tensors{y};
        },
        {sample({20})});
  }
}

TEST_F(UnseenWritesTest, StatisticsThatEvaluationHasSavedAreThoseThatTrainingLeaves) {
  for (const Policy& policy : policies()) {
    expect_same_gradients(
        [](const Tensors& in) {
          const at::Tensor mean = at::zeros({3}), variance = at::ones({3});
          const auto normalized = [&](const at::Tensor& x, bool training) {
            return at::batch_norm(x, {}, {}, mean, variance, training, 0.1, 1e-5, /*cudnn_enabled=*/false);
          };
          const at::Tensor evaluated = normalized(in[0].sin(), false);
          const at::Tensor trained = normalized(evaluated.cos(), true);
          return Tensors{evaluated, trained};
        },
        {sample({4, 3, 5})}, policy);
  }
}

TEST_F(UnseenWritesTest, StatisticsThatWereComputedInTheRegion) {
  for (const Policy& policy : policies()) {
    expect_same_gradients(
        [](const Tensors& in) {
          const at::Tensor mean = in[0].detach().mean(1), variance = in[0].detach().var(1);
          at::Tensor x = in[0].sin();
          for (int i = 0; i < 3; ++i) {
            x = at::batch_norm(x.cos(), {}, {}, mean, variance, /*training=*/i == 1, 0.1, 1e-5,
                               /*cudnn_enabled=*/false);
          }
          return Tensors{x};
        },
        {sample({4, 4})}, policy);
  }
}

// Autograd holds the storage, not the value that an op has taken from it before the write.
TEST_F(UnseenWritesTest, WhatWasComputedBeforeTheWriteIsNotRecomputedFromWhatItLeft) {
  for (const bool from_outside : {false, true}) {
    for (const Policy& policy : policies()) {
      expect_same_gradients(
          [&](const Tensors& in) {
            const at::Tensor mean = from_outside ? in[2] : in[0].cos();
            const at::Tensor y = (in[0] * mean).exp().tanh();
            const at::Tensor z = at::batch_norm(in[1], {}, {}, mean.detach(), at::ones({4}), true, 0.1, 1e-5, false);
            tag_with_policy(y, CheckpointPolicy::MUST_RECOMPUTE);
            return Tensors{y * 1, z * 1};
          },
          {sample({4}), sample({4, 4}), constant({4})}, policy);
    }
  }
}

// As the statistics of a layer that is called again and again.
TEST_F(UnseenWritesTest, StatisticsAreHeldOnce) {
  const Stats stats = expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor x = in[0];
        for (int i = 0; i < 3; ++i) x = at::batch_norm(x, {}, {}, in[1], in[2], /*training=*/true, 0.1, 1e-5, false);
        return Tensors{x};
      },
      {sample({4, 3}), constant({3}), constant({3})});
  EXPECT_EQ(stats.forward.saved_bytes, (4 * 3 + 3 + 3) * 4);
  EXPECT_EQ(stats.forward.copied_bytes, 0);
}

}  // namespace
}  // namespace ac2::test
