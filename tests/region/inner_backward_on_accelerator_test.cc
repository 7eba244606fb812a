// A backward with create_graph inside a region, on an accelerator, for which autograd has a thread of its own.
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "ac2/memory_budget.h"
#include "ac2/scope.h"
#include "ac2/trace.h"
#include "tests/support/offload_fixture.h"

namespace ac2::test {
namespace {

using InnerBackwardOnAcceleratorTest = OffloadTest;

at::Tensor slope(const at::Tensor& of, const at::Tensor& input) {
  return torch::autograd::grad({of.sum()}, {input}, {}, std::nullopt, /*create_graph=*/true)[0];
}

at::Tensor force_loss(const at::Tensor& x) {
  return slope(x.sin().exp().cos(), x).neg().square().sum();
}

// WGAN-GP's critic.
at::Tensor penalty(const at::Tensor& x, const at::Tensor& w) {
  const at::Tensor says = x.mm(w).tanh();
  return says.mean() + (slope(says, x).norm(2, 1) - 1).square().mean();
}

TEST_F(InnerBackwardOnAcceleratorTest, HoldsTheInputAloneOfAForceField) {
  const at::Tensor x = leaf(sample({kNumbers}));
  const at::Tensor expected = gradient_of(force_loss(x), x).cpu();
  for (const bool budget : {false, true}) {
    std::shared_ptr<const Trace> trace;
    at::Tensor loss;
    {
      const PolicyScope scope("recompute_all",
                              {.memory_budget = budget ? std::optional(MemoryBudget(8 * kBytes)) : std::nullopt});
      trace = scope.trace();
      loss = force_loss(x);
    }
    if (!budget) {
      // The input, and the 1 with which the inner backward begins.
      EXPECT_EQ(trace->stats().saved_bytes, kBytes + 4);
    }
    expect_same_bits({gradient_of(loss, x).cpu()}, {expected}, "gradient");
    EXPECT_EQ(trace->stats().saved_bytes, 0);
  }
}

TEST_F(InnerBackwardOnAcceleratorTest, RecordsAGradientPenalty) {
  const at::Tensor x = leaf(sample({16, 32})), w = leaf(sample({32, 64}));
  const Tensors expected = gradients_of({penalty(x, w)}, {x, w});
  std::shared_ptr<const Trace> trace;
  at::Tensor loss;
  {
    const PolicyScope scope("recompute_all");
    trace = scope.trace();
    loss = penalty(x, w);
  }
  EXPECT_EQ(trace->stats().saved_bytes, 4 * (16 * 32 + 32 * 64) + 4);
  const Tensors actual = gradients_of({loss}, {x, w});
  expect_same_bits({actual[0].cpu(), actual[1].cpu()}, {expected[0].cpu(), expected[1].cpu()}, "gradients");
}

// Says on which thread its backward runs, and leaves everything as it is.
struct Where : torch::autograd::Function<Where> {
  static inline std::thread::id ran_on;
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 torch::autograd::variable_list gradients) {
    ran_on = std::this_thread::get_id();
    return {gradients[0] * 1};
  }
};

TEST_F(InnerBackwardOnAcceleratorTest, OtherBackwardsRunOnTheThreadOfTheEngine) {
  const at::Tensor x = leaf(sample({kNumbers}));
  {
    const PolicyScope scope("recompute_all");
    gradient_of(Where::apply(x).sin(), x);
    EXPECT_NE(Where::ran_on, std::this_thread::get_id());
    slope(Where::apply(x).sin(), x);
    EXPECT_EQ(Where::ran_on, std::this_thread::get_id());
    EXPECT_TRUE(c10::AutogradState::get_tls_state().get_multithreading_enabled());
  }
  slope(Where::apply(x).sin(), x);
  EXPECT_NE(Where::ran_on, std::this_thread::get_id());
}

}  // namespace
}  // namespace ac2::test
