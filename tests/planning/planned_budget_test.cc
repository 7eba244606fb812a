// StepPlanner::budget(): what a memory budget would cost a step, on paper, beside steps under such budgets.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "ac2/in_chunks.h"
#include "ac2/memory_budget.h"
#include "ac2/plan.h"
#include "ac2/scope.h"
#include "policies/policies.h"
#include "tests/support/regions.h"
#include "tests/support/warnings.h"

namespace ac2::test {
namespace {

using ::testing::HasSubstr;

using Network = std::function<at::Tensor(const at::Tensor&)>;

at::Tensor chain(const at::Tensor& x) {
  at::Tensor y = x;
  for (int i = 0; i < 40; ++i) y = y.sin();
  return y;
}

at::Tensor mlp(const at::Tensor& x) {
  const at::Tensor weight = constant({64, 64});
  at::Tensor y = x;
  for (int i = 0; i < 8; ++i) y = at::gelu(at::linear(y, weight)).tanh();
  return y;
}

// Layers that are added to what comes in.
at::Tensor residual(const at::Tensor& x) {
  const at::Tensor weight = constant({64, 64});
  at::Tensor y = x;
  for (int i = 0; i < 8; ++i) y = y + at::gelu(at::linear(at::layer_norm(y, {64}), weight));
  return y;
}

struct Step {
  int64_t forward_bytes = 0;
  int64_t replayed_ops = 0;
};

// A step that no budget knows: each has other sizes.
Step run(const Network& network, const at::Tensor& x, int64_t bytes) {
  const MemoryBudget budget(bytes, /*modelled_costs=*/true);
  std::shared_ptr<const Trace> trace;
  at::Tensor loss;
  {
    const PolicyScope scope({.memory_budget = budget});
    trace = scope.trace();
    loss = network(x).sum();
  }
  Step step{.forward_bytes = budget.held_bytes()};
  loss.backward();
  step.replayed_ops = trace->stats().recomputed_ops;
  return step;
}

class PlannedBudgetTest : public CleanTest {};

struct Compared {
  int64_t bytes = 0;
  PlanSummary paper;
  Step step;
};

Compared compare(const Network& network, int64_t rows, double share) {
  const at::Tensor x = sample({rows, 64});
  StepPlanner planner([&] { network(x).sum().backward(); }, {.modelled_costs = true});
  const PlanSummary all = planner.summarize([](const StepPlanner::Op&) { return true; });
  const auto bytes = static_cast<int64_t>(static_cast<double>(all.forward_bytes) * share);
  return {.bytes = bytes, .paper = planner.budget(bytes), .step = run(network, x, bytes)};
}

TEST_F(PlannedBudgetTest, SaysOfAChainToTheByteAndTheOpWhatAStepUnderTheBudgetHoldsAndReplays) {
  int64_t rows = 16;
  for (const double share : {1.0, 0.9, 0.7, 0.5, 0.35, 0.25}) {
    const auto [bytes, paper, step] = compare(chain, rows++, share);
    EXPECT_EQ(paper.forward_bytes, step.forward_bytes) << share;
    EXPECT_EQ(paper.replayed_ops, step.replayed_ops) << share;
    EXPECT_LE(paper.peak_bytes, bytes) << share;
    EXPECT_EQ(paper.replay_cost > 0, share < 1) << share;
  }
}

// Costs are modelled, so that the figures are the same on each machine.
TEST_F(PlannedBudgetTest, SaysTheReplaysOfLayersDownToHalfOfTheBytesAndComesNearBelow) {
  int64_t rows = 32;
  for (const Network& network : {Network(mlp), Network(residual)}) {
    for (const double share : {0.9, 0.7, 0.5, 0.35}) {
      const auto [bytes, paper, step] = compare(network, rows++, share);
      EXPECT_NEAR(static_cast<double>(paper.forward_bytes), static_cast<double>(step.forward_bytes), 0.01 * bytes);
      EXPECT_LE(paper.peak_bytes, bytes) << share;
      if (share >= 0.5) {
        EXPECT_EQ(paper.replayed_ops, step.replayed_ops) << share;
      } else {
        EXPECT_LE(paper.replayed_ops, 2 * step.replayed_ops) << share;
        EXPECT_LE(step.replayed_ops, 2 * paper.replayed_ops) << share;
      }
    }
  }
}

TEST_F(PlannedBudgetTest, MoreBytesReplayNoMoreOps) {
  const at::Tensor x = sample({8, 64});
  StepPlanner planner([&] { chain(x).sum().backward(); }, {.modelled_costs = true});
  int64_t before = std::numeric_limits<int64_t>::max();
  for (int64_t bytes = 20 << 10; bytes < 90 << 10; bytes += 8 << 10) {
    const int64_t replayed = planner.budget(bytes).replayed_ops;
    EXPECT_LE(replayed, before) << bytes;
    before = replayed;
  }
  EXPECT_EQ(before, 0);
}

TEST_F(PlannedBudgetTest, TooFewBytesAreAnErrorAsInTheStep) {
  const at::Tensor x = sample({29, 64});
  StepPlanner planner([&] { residual(x).sum().backward(); }, {.modelled_costs = true});
  const std::string paper = error_of([&] { planner.budget(33000); });
  EXPECT_THAT(paper, HasSubstr("This step cannot meet a memory budget of 33000 bytes: at one place it holds"));
  EXPECT_THAT(paper, HasSubstr("The smallest plan that was found takes"));
  EXPECT_THAT(error_of([&] { run(residual, x, 33000); }), HasSubstr("The memory budget of 33000 bytes cannot be met"));
  EXPECT_THAT(error_of([&] { planner.budget(0); }), HasSubstr("must be a positive number of bytes, but is 0"));
}

TEST_F(PlannedBudgetTest, WhatAPolicySavesInsideTheStepIsNotDropped) {
  const at::Tensor x = sample({8, 64});
  StepPlanner planner(
      [&] {
        at::Tensor y = x;
        for (int i = 0; i < 10; ++i) {
          const PolicyScope scope(policies::save_ops({"aten::sin"}));
          y = y.sin().cos();
        }
        y.sum().backward();
      },
      {.modelled_costs = true});
  EXPECT_THAT(error_of([&] { planner.budget(10 * 8 * 64 * 4); }), HasSubstr("cannot meet a memory budget"));
  const PlanSummary summary = planner.budget(14 * 8 * 64 * 4);
  EXPECT_GT(summary.replayed_ops, 0);
  EXPECT_GE(summary.forward_bytes, 10 * 8 * 64 * 4);
}

// An MLP of which each layer is computed a quarter of the rows at a time.
at::Tensor chunked(const at::Tensor& x) {
  const at::Tensor weight = constant({64, 64});
  at::Tensor y = x;
  for (int i = 0; i < 4; ++i) {
    y = in_chunks([&](const at::Tensor& rows) { return at::linear(rows, weight).tanh().sin(); }, y, {.chunks = 4});
  }
  return y;
}

// Layers of which each second one is preferred to be recomputed.
at::Tensor half_recomputed(const at::Tensor& x) {
  at::Tensor y = x;
  for (int i = 0; i < 10; ++i) {
    y = y.sin().cos();
    const PolicyScope scope("recompute_all");
    y = y.tanh().exp().neg();
  }
  return y;
}

TEST_F(PlannedBudgetTest, WhatPoliciesPreferToRecomputeInsideTheStepIsHeldWhileThereIsRoomAndGoesFirst) {
  struct Case {
    Network network;
    double least_share;  // down to which the figures are equal
  };
  int64_t rows = 64;
  for (const auto& [network, least_share] : {Case{chunked, 0.8}, Case{half_recomputed, 0.5}}) {
    const at::Tensor x = sample({rows, 64});
    StepPlanner planner([&] { network(x).sum().backward(); }, {.modelled_costs = true});
    const int64_t all = planner.budget(int64_t{1} << 40).forward_bytes;
    for (double share = 1; share > least_share - 0.05; share -= 0.1) {
      const auto bytes = static_cast<int64_t>(static_cast<double>(all) * share);
      const PlanSummary paper = planner.budget(bytes);
      const Step step = run(network, sample({rows, 64}), bytes);
      EXPECT_EQ(paper.replayed_ops, step.replayed_ops) << share;
      EXPECT_EQ(paper.replayed_ops == 0, share == 1) << share;
      EXPECT_EQ(paper.forward_bytes, step.forward_bytes) << share;
      EXPECT_LE(paper.peak_bytes, bytes) << share;
    }
    rows += 8;
  }
}

}  // namespace
}  // namespace ac2::test
