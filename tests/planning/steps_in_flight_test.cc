// PlanOptions::in_flight: forwards of several steps under one plan, then their backwards.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ac2/memory_budget.h"
#include "ac2/plan.h"
#include "ac2/scope.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSteps = 6;

class StepsInFlightTest : public CleanTest {
 protected:
  // Layers that are added to what comes in.
  at::Tensor forward() const {
    at::Tensor y = x_;
    for (int i = 0; i < 8; ++i) {
      y = y + at::linear(at::gelu(at::linear(at::layer_norm(y, {32}), wide_)), narrow_);
    }
    return y.sum();
  }

  StepPlanner planner(int64_t in_flight) const {
    return StepPlanner([&] { torch::autograd::grad({forward()}, {x_}); },
                       {.modelled_costs = true, .in_flight = in_flight});
  }

  static int64_t total(const PlanSummary& summary) { return (kSteps - 1) * summary.forward_bytes + summary.peak_bytes; }

  // All forwards, each in a region of its own, and then all backwards. Each region has a budget of exactly the peak of
  // one step, and drops nothing for it, and those that wait hold what the plan says.
  void expect_kept_promises(const Plan& plan) {
    const PlanSummary& summary = plan.summary();
    std::vector<MemoryBudget> budgets;
    std::vector<std::shared_ptr<const Trace>> traces;
    Tensors losses;
    for (int64_t step = 0; step < kSteps; ++step) {
      budgets.emplace_back(summary.peak_bytes, /*modelled_costs=*/true);
      const PolicyScope scope(plan, {.memory_budget = budgets.back()});
      traces.push_back(scope.trace());
      losses.push_back(forward());
    }
    for (int64_t step = 0; step < kSteps; ++step) {
      int64_t waiting = 0;
      for (const MemoryBudget& budget : budgets) waiting += budget.held_bytes();
      EXPECT_EQ(waiting, (kSteps - step) * summary.forward_bytes);
      expect_same_bits(torch::autograd::grad({losses[step]}, {x_}), {plain_}, "gradients");
      EXPECT_EQ(traces[step]->stats().recomputed_ops, summary.replayed_ops);
      EXPECT_EQ(traces[step]->stats().evicted_values, 0);
      EXPECT_EQ(budgets[step].held_bytes(), 0);
    }
  }

  at::Tensor x_ = sample({16, 32});
  at::Tensor wide_ = constant({128, 32}), narrow_ = constant({32, 128});
  at::Tensor plain_ = torch::autograd::grad({forward()}, {x_})[0];
};

TEST_F(StepsInFlightTest, HoldTheBytesOfTheirPlanTogether) {
  StepPlanner planner = this->planner(kSteps);
  const PlanSummary all = planner.summarize([](const StepPlanner::Op&) { return true; });
  const int64_t least = total(planner.smallest().summary());
  ASSERT_LT(2 * least, total(all));
  for (int i = 0; i <= 4; ++i) {
    const int64_t bytes = least + (total(all) - least) * i / 4;
    SCOPED_TRACE(bytes);
    const Plan plan = planner.plan(bytes);
    EXPECT_LE(total(plan.summary()), bytes);
    expect_kept_promises(plan);
  }
}

TEST_F(StepsInFlightTest, HaveTheBudgetOfOneStepFromTheirPlan) {
  const Plan plan = planner(kSteps).smallest();
  Tensors losses;
  std::vector<std::shared_ptr<const Trace>> traces;
  for (int64_t step = 0; step < kSteps; ++step) {
    const PolicyScope scope(plan);
    traces.push_back(scope.trace());
    losses.push_back(forward());
  }
  for (const at::Tensor& loss : losses) torch::autograd::grad({loss}, {x_});
  for (const auto& trace : traces) {
    EXPECT_EQ(trace->stats().recomputed_ops, plan.summary().replayed_ops);
    EXPECT_EQ(trace->stats().evicted_values, 0);
  }
}

TEST_F(StepsInFlightTest, ReplayLessThanIfEachHadItsShareOfTheBytes) {
  StepPlanner planner = this->planner(kSteps), planner_of_one = this->planner(1);
  const PlanSummary smallest = planner_of_one.smallest().summary();
  for (const int64_t percent : {100, 125, 150, 200}) {
    const int64_t share = smallest.peak_bytes * percent / 100;
    const PlanSummary together = planner.plan(kSteps * share).summary(), alone = planner_of_one.plan(share).summary();
    EXPECT_LE(together.replay_cost, alone.replay_cost) << percent;
    if (percent == 100) {
      EXPECT_LT(together.replayed_ops, alone.replayed_ops);
      EXPECT_LT(together.replay_cost, alone.replay_cost);
    }
  }
  EXPECT_LT(total(planner.smallest().summary()), total(smallest));
}

TEST_F(StepsInFlightTest, AreAtMostThoseThatKeepNothing) {
  StepPlanner planner = this->planner(kSteps);
  const PlanSummary none = planner.summarize([](const StepPlanner::Op&) { return false; });
  EXPECT_LE(total(planner.smallest().summary()), total(none));
  EXPECT_LE(planner.plan(total(none)).summary().replay_cost, none.replay_cost);
}

TEST_F(StepsInFlightTest, TooFewBytesAreAnErrorThatSaysHowManyAllStepsTake) {
  StepPlanner planner = this->planner(kSteps);
  const PlanSummary smallest = planner.smallest().summary();
  const std::string error = error_of([&] { planner.plan(total(smallest) / 2); });
  EXPECT_THAT(error, HasSubstr("the smallest that was found takes " + std::to_string(total(smallest)) +
                               " with 6 steps in flight (PlanOptions::in_flight), of which one holds " +
                               std::to_string(smallest.peak_bytes) + " at its peak, and each other " +
                               std::to_string(smallest.forward_bytes) + " until its backward"));
}

TEST_F(StepsInFlightTest, FewerThanOneIsAnError) {
  for (const int64_t in_flight : {0, -3}) {
    expect_error([&] { planner(in_flight); },
                 {"PlanOptions::in_flight must be 1 or more steps, but is ", std::to_string(in_flight).c_str()});
  }
}

}  // namespace
}  // namespace ac2::test
