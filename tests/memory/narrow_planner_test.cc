// Plans that pack results into a narrower form: the simulator against counts by hand, and the planner against all ways
// to keep, replay and pack on small steps.
#include "ac2/internal/planning/narrow_planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <random>
#include <vector>

#include "ac2/internal/planning/planner.h"
#include "benchmarks/networks/network_steps.h"
#include "tests/memory/least_cost.h"
#include "tests/memory/random_dag.h"

namespace ac2::internal {
namespace {

using Fate = StepGraph::Fate;
using Step = NetworkStep;

// All values may be packed into a quarter of their bytes, for so much per byte.
void let_narrow(Step& step, double cost_of_byte) {
  for (StepGraph::Value& value : step.graph.values) {
    value.narrows = true;
    value.narrow_bytes = value.bytes / 4;
    value.narrow_cost = cost_of_byte * static_cast<double>(value.bytes);
  }
}

// A chain of ops of cost 10 whose results take 100 bytes and are wanted.
Step chain(int ops) {
  Step step;
  std::vector<uint32_t> last;
  for (int i = 0; i < ops; ++i) last = {step.run(10, 100, last, Step::kResult)};
  step.backward();
  let_narrow(step, 0.04);  // 4 a value
  return step;
}

TEST(NarrowedStepTest, HoldsTheFormsAndOneUnpackedValueBesideThem) {
  const Step step = chain(6);
  KeepSimulator simulator(step.graph);
  std::vector<Keep> kept(6, Keep::kNarrowed);
  simulator.complete(kept);
  const KeepOutcome outcome = simulator.run(kept);
  EXPECT_EQ(outcome.forward_bytes, 6 * 25);
  EXPECT_EQ(outcome.peak_bytes, 6 * 25 + 100);
  EXPECT_EQ(outcome.replays, 0);
  EXPECT_EQ(outcome.narrowed_values, 6);
  EXPECT_EQ(outcome.narrowed_bytes, 600);
  EXPECT_DOUBLE_EQ(outcome.narrow_cost, 6 * 4);
  EXPECT_EQ(outcome.extra_cost(), outcome.narrow_cost);
}

TEST(NarrowedStepTest, AReplayUnpacksWhatItTakesAndEachFurtherUseCostsAQuarter) {
  const Step step = chain(3);
  KeepSimulator simulator(step.graph);
  std::vector<Keep> kept = {Keep::kNarrowed, Keep::kNothing, Keep::kWanted};
  simulator.complete(kept);
  const KeepOutcome outcome = simulator.run(kept);
  EXPECT_EQ(outcome.forward_bytes, 25 + 100);
  // Of the form, what it is unpacked to and the result of the replay.
  EXPECT_EQ(outcome.peak_bytes, 25 + 100 + 100);
  EXPECT_EQ(outcome.replays, 1);
  EXPECT_DOUBLE_EQ(outcome.replay_cost, 10);
  EXPECT_DOUBLE_EQ(outcome.narrow_cost, 4);  // the value stays unpacked until its own hook has taken it
}

TEST(NarrowedStepTest, WhatHasNoFormIsKeptAsItIs) {
  Step step = chain(4);
  step.graph.values[1].narrows = false;
  KeepSimulator simulator(step.graph);
  std::vector<Keep> kept(4, Keep::kNarrowed);
  simulator.complete(kept);
  const KeepOutcome outcome = simulator.run(kept);
  EXPECT_EQ(outcome.forward_bytes, 3 * 25 + 100);
  EXPECT_EQ(outcome.narrowed_values, 3);
}

// Each third op is dear, the others are cheap.
Step dear_and_cheap(int ops) {
  Step step;
  std::vector<uint32_t> last;
  for (int i = 0; i < ops; ++i) last = {step.run(i % 3 == 0 ? 1000 : 10, 100, last, Step::kResult)};
  step.backward();
  let_narrow(step, 0.5);
  return step;
}

TEST(NarrowPlannerTest, WhatIsDearIsPackedAndWhatIsCheapIsComputedAgain) {
  const Step step = dear_and_cheap(30);
  Planner planner(step.graph);
  NarrowPlanner forms(step.graph, planner);
  const std::optional<KeepPlan> plan = forms.solve(700);
  ASSERT_TRUE(plan);
  EXPECT_LE(plan->outcome.peak_bytes, 700);
  EXPECT_GT(plan->outcome.narrowed_values, 0);
  EXPECT_LT(plan->outcome.extra_cost(), planner.solve(700)->outcome.extra_cost());
  for (uint32_t op = 0; op < 30; ++op) {
    if (op % 3 == 0) {
      EXPECT_NE(plan->kept[op], Keep::kNothing) << op;
    } else {
      EXPECT_NE(plan->kept[op], Keep::kNarrowed) << op;
    }
  }
}

TEST(NarrowPlannerTest, WhatMayNotBePackedIsNot) {
  Step step = dear_and_cheap(30);
  for (uint32_t value = 0; value < 30; value += 2) step.graph.values[value].narrows = false;
  Planner planner(step.graph);
  const std::optional<KeepPlan> plan = NarrowPlanner(step.graph, planner).solve(900);
  ASSERT_TRUE(plan);
  EXPECT_GT(plan->outcome.narrowed_values, 0);
  for (uint32_t op = 0; op < 30; op += 2) EXPECT_NE(plan->kept[op], Keep::kNarrowed) << op;
}

Step narrowing_dag(std::mt19937& dice, int ops, double cost_of_byte) {
  Step step = random_dag(dice, ops, 100);
  let_narrow(step, cost_of_byte);
  return step;
}

TEST(NarrowPlannerTest, DearFormsGiveThePlanWithout) {
  std::mt19937 dice(4);
  for (int round = 0; round < 60; ++round) {
    const Step step = narrowing_dag(dice, 5 + static_cast<int>(dice() % 20), 1e9);
    Planner alone(step.graph), beside(step.graph);
    NarrowPlanner forms(step.graph, beside);
    beside.smallest();
    const int64_t least = alone.smallest().outcome.peak_bytes, most = alone.keep_all().outcome.peak_bytes;
    for (int i = 0; i <= 4; ++i) {
      const int64_t bytes = least + (most - least) * i / 4;
      const std::optional<KeepPlan> plain = alone.solve(bytes), plan = forms.solve(bytes);
      ASSERT_EQ(plan.has_value(), plain.has_value());
      if (plan) {
        EXPECT_EQ(plan->kept, plain->kept) << "round " << round << ", " << bytes << " bytes";
      }
    }
  }
}

TEST(NarrowPlannerTest, IsNeverWorseThanReplaysAloneAndStaysWithinItsBytes) {
  std::mt19937 dice(5);
  int packed = 0;
  for (int round = 0; round < 60; ++round) {
    const double cost = static_cast<double>(1 + dice() % 20) / 1000;
    const Step step = narrowing_dag(dice, 10 + static_cast<int>(dice() % 30), cost);
    Planner planner(step.graph);
    NarrowPlanner forms(step.graph, planner);
    const int64_t most = planner.keep_all().outcome.peak_bytes;
    EXPECT_LE(forms.smallest().outcome.peak_bytes, planner.smallest().outcome.peak_bytes);
    for (const double fraction : {0.9, 0.6, 0.3}) {
      const auto bytes = static_cast<int64_t>(fraction * static_cast<double>(most));
      const std::optional<KeepPlan> plain = planner.solve(bytes), plan = forms.solve(bytes);
      if (plain) {
        ASSERT_TRUE(plan);
        EXPECT_LE(plan->outcome.extra_cost(), plain->outcome.extra_cost());
      }
      if (plan) {
        EXPECT_LE(plan->outcome.peak_bytes, bytes);
        packed += plan->outcome.narrowed_values > 0 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(packed, 60);
}

// The least that a step takes within the bytes, over all ways.
double least_cost(const Step& step, int64_t bytes) {
  KeepSimulator simulator(step.graph);
  return least_cost(step.graph, simulator, Keep::kNarrowed, bytes);
}

// How far from the best it may be: see docs/budget.md.
TEST(NarrowPlannerTest, IsNearTheBestOnRandomGraphs) {
  std::mt19937 dice(6);
  int solved = 0, best = 0, missed = 0;
  double worst = 0, sum = 0, saved = 0, without = 0;
  for (int round = 0; round < 100; ++round) {
    const Step step = narrowing_dag(dice, 5 + static_cast<int>(dice() % 4), 0.01);
    Planner planner(step.graph);
    NarrowPlanner forms(step.graph, planner);
    const int64_t most = planner.keep_all().outcome.peak_bytes;
    const int64_t least = forms.smallest().outcome.peak_bytes;
    for (int64_t bytes = least; bytes < most; bytes += 100) {
      const std::optional<KeepPlan> plan = forms.solve(bytes);
      if (!plan) {
        ++missed;
        continue;
      }
      EXPECT_LE(plan->outcome.peak_bytes, bytes);
      const double cost = plan->outcome.extra_cost();
      const double above = std::max(0.0, cost - least_cost(step, bytes)) / step.cost();
      ++solved;
      best += above < 1e-9 ? 1 : 0;
      sum += above;
      worst = std::max(worst, above);
      if (const std::optional<KeepPlan> plain = planner.solve(bytes)) {
        saved += plain->outcome.extra_cost() - cost;
        without += plain->outcome.extra_cost();
      }
    }
  }
  std::printf(
      "%d budgets: %d best, %d missed; above the best by %.4f of a forward on average, %.3f at most; forms save %.3f "
      "of "
      "what plans without them replay\n",
      solved + missed, best, missed, sum / solved, worst, saved / without);
  EXPECT_EQ(missed, 0);
  EXPECT_GT(saved, 0);
  EXPECT_GE(best, solved * 90 / 100);
  EXPECT_LE(sum / solved, 0.01);
}

TEST(NarrowPlannerTest, TheSameStepHasTheSamePlan) {
  std::mt19937 dice(7);
  const Step step = narrowing_dag(dice, 60, 0.01);
  std::vector<std::vector<Keep>> plans;
  for (int run = 0; run < 2; ++run) {
    Planner planner(step.graph);
    const std::optional<KeepPlan> plan =
        NarrowPlanner(step.graph, planner).solve(planner.keep_all().outcome.peak_bytes / 3);
    ASSERT_TRUE(plan);
    plans.push_back(plan->kept);
  }
  EXPECT_EQ(plans[1], plans[0]);
}

}  // namespace
}  // namespace ac2::internal
