// Plans for steps of which several are in flight: the bytes against counts by hand, and the planner against all subsets
// on small steps and against plain ways to checkpoint on a network.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "ac2/internal/planning/form_planner.h"
#include "ac2/internal/planning/planner.h"
#include "benchmarks/networks/network_steps.h"
#include "tests/planning/random_dag.h"

namespace ac2::internal {
namespace {

using Fate = StepGraph::Fate;
using Step = NetworkStep;

Step in_flight(Step step, int64_t steps) {
  step.graph.in_flight = steps;
  return step;
}

KeepOutcome outcome_of(const Step& step, std::vector<Keep> kept) {
  KeepSimulator simulator(step.graph);
  simulator.complete(kept);
  return simulator.run(kept);
}

// Of all ways to keep the results of each op or not.
std::vector<KeepOutcome> all_outcomes(const Step& step) {
  std::vector<uint32_t> open;
  for (uint32_t op = 0; op < step.graph.ops.size(); ++op) {
    if (step.graph.ops[op].fate == Fate::kOpen) open.push_back(op);
  }
  std::vector<KeepOutcome> outcomes;
  for (uint32_t set = 0; set < (1U << open.size()); ++set) {
    std::vector<Keep> kept(step.graph.ops.size(), Keep::kNothing);
    for (size_t i = 0; i < open.size(); ++i) {
      if ((set >> i & 1) != 0) kept[open[i]] = Keep::kWanted;
    }
    outcomes.push_back(outcome_of(step, std::move(kept)));
  }
  return outcomes;
}

double least_cost(const std::vector<KeepOutcome>& outcomes, int64_t bytes) {
  double least = std::numeric_limits<double>::infinity();
  for (const KeepOutcome& outcome : outcomes) {
    if (outcome.total_bytes <= bytes) least = std::min(least, outcome.replay_cost);
  }
  return least;
}

// The layers' outputs and nothing else, as with a region around each layer that recomputes all.
std::vector<Keep> outputs_of_layers(const Step& transformer) {
  std::vector<Keep> kept(transformer.graph.ops.size(), Keep::kNothing);
  for (size_t op = 0; op < kept.size(); op += 9) kept[op] = Keep::kWanted;
  return kept;
}

TEST(PlannerInFlightTest, AllButOneHoldWhatTheyHoldWhenTheirBackwardBegins) {
  std::vector<Keep> kept(8, Keep::kNothing);
  kept[2] = kept[5] = Keep::kWanted;
  const KeepOutcome one = outcome_of(sines_step(8), kept);
  EXPECT_EQ(one.forward_bytes, 2);
  EXPECT_EQ(one.peak_bytes, 3);
  EXPECT_EQ(one.total_bytes, 3);
  const KeepOutcome four = outcome_of(in_flight(sines_step(8), 4), kept);
  EXPECT_EQ(four.forward_bytes, 2);
  EXPECT_EQ(four.peak_bytes, 3);
  EXPECT_EQ(four.total_bytes, 3 * 2 + 3);
  EXPECT_EQ(four.replays, one.replays);
}

TEST(PlannerInFlightTest, WhatMayBeOnItsWayToTheHostWhenForwardEndsCountsForEachThatWaits) {
  // All of six results leave. In forward 100 bytes may be on their way, and as many on their way back.
  Step step;
  std::vector<uint32_t> last;
  for (int i = 0; i < 6; ++i) last = {step.run(10, 100, last, Step::kResult)};
  step.backward();
  step.graph.forms.push_back(StepGraph::Queue::kCopies);
  for (StepGraph::Value& value : step.graph.values) value.forms.push_back({0, 0, 0, 0});
  step.graph.in_flight = 5;
  KeepSimulator simulator(step.graph);
  simulator.set_copies({100, 100, 100});
  std::vector<Keep> kept(6, keep_in(0));
  simulator.complete(kept);
  const KeepOutcome outcome = simulator.run(kept);
  EXPECT_EQ(outcome.forward_bytes, 0);
  EXPECT_EQ(outcome.waiting_bytes, 100);
  EXPECT_EQ(outcome.total_bytes, 4 * 100 + outcome.peak_bytes);
}

TEST(PlannerInFlightTest, MoreBytesThanCanBeCountedAreTheMostThatCan) {
  const Step step = in_flight(sines_step(8), std::numeric_limits<int64_t>::max());
  const KeepOutcome outcome = outcome_of(step, std::vector<Keep>(8, Keep::kWanted));
  EXPECT_EQ(outcome.total_bytes, std::numeric_limits<int64_t>::max());
  Planner planner(step.graph);
  const std::optional<KeepPlan> plan = planner.solve(100);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->outcome.forward_bytes, 0);
  EXPECT_EQ(planner.smallest().outcome.total_bytes, 7);
}

// How far from the best it may be: see docs/budget.md.
TEST(PlannerInFlightTest, PlansAreNearTheBestOnSmallSteps) {
  std::mt19937 dice(5);
  for (const int64_t steps : {2, 4, 16}) {
    int solved = 0, best = 0, missed = 0, smallest = 0, rounds = 0, worse = 0;
    double worst = 0, sum = 0;
    for (; rounds < 20; ++rounds) {
      const Step alone = random_dag(dice, 5 + static_cast<int>(dice() % 6));
      const Step step = in_flight(alone, steps);
      const std::vector<KeepOutcome> outcomes = all_outcomes(step);
      const auto [least, most] =
          std::minmax_element(outcomes.begin(), outcomes.end(),
                              [](const KeepOutcome& a, const KeepOutcome& b) { return a.total_bytes < b.total_bytes; });
      Planner planner(step.graph), planner_of_one(alone.graph);
      smallest += planner.smallest().outcome.total_bytes == least->total_bytes ? 1 : 0;
      for (int64_t bytes = least->total_bytes; bytes <= most->total_bytes; bytes += steps) {
        const std::optional<KeepPlan> plan = planner.solve(bytes);
        if (!plan) {
          ++missed;
          continue;
        }
        ++solved;
        EXPECT_LE(plan->outcome.total_bytes, bytes);
        const double cost = least_cost(outcomes, bytes);
        EXPECT_LE(planner.least_cost(bytes), cost + 1e-9);
        const std::optional<KeepPlan> of_share = planner_of_one.solve(bytes / steps);
        worse += of_share && of_share->outcome.replay_cost < plan->outcome.replay_cost ? 1 : 0;
        const double above = (plan->outcome.replay_cost - cost) / step.cost();
        best += above == 0 ? 1 : 0;
        sum += above;
        worst = std::max(worst, above);
      }
      EXPECT_FALSE(planner.solve(least->total_bytes - 1));
    }
    std::printf(
        "%d in flight, %d budgets: %d best, %d missed, %d worse than for a share; above the best by %.4f of a forward "
        "on average, %.3f at most; the smallest of %d steps of %d\n",
        static_cast<int>(steps), solved + missed, best, missed, worse, sum / solved, worst, smallest, rounds);
    EXPECT_GE(best, solved * 96 / 100);
    EXPECT_LE(missed, (solved + missed) / 100);
    EXPECT_LE(worse, solved * 2 / 100);
    EXPECT_LE(sum / solved, 0.002);
    EXPECT_LE(worst, 0.3);
    EXPECT_GE(smallest, rounds * 9 / 10);
  }
}

TEST(PlannerInFlightTest, PlansReplayNoMoreThanKeepingTheOutputsOfLayersOrNothing) {
  for (const int64_t steps : {2, 4, 16, 64}) {
    const Step step = in_flight(transformer_step(8), steps);
    Planner planner(step.graph);
    for (const std::vector<Keep>& kept :
         {outputs_of_layers(step), std::vector<Keep>(step.graph.ops.size(), Keep::kNothing)}) {
      const KeepOutcome plain = outcome_of(step, kept);
      EXPECT_LE(planner.smallest().outcome.total_bytes, plain.total_bytes) << steps;
      const std::optional<KeepPlan> plan = planner.solve(plain.total_bytes);
      ASSERT_TRUE(plan) << steps;
      EXPECT_LE(plan->outcome.total_bytes, plain.total_bytes) << steps;
      EXPECT_LE(plan->outcome.replay_cost, plain.replay_cost) << steps;
    }
  }
}

TEST(PlannerInFlightTest, PlansReplayLessThanThoseForAShareOfTheBytes) {
  const Step alone = transformer_step(24), step = in_flight(alone, 16);
  Planner planner(step.graph), planner_of_one(alone.graph);
  const int64_t all = planner.keep_all().outcome.total_bytes;
  EXPECT_LT(2 * planner.smallest().outcome.total_bytes, 16 * planner_of_one.smallest().outcome.peak_bytes);
  for (const double fraction : {0.75, 0.5, 0.25, 0.125, 0.08}) {
    const auto bytes = static_cast<int64_t>(fraction * static_cast<double>(all));
    const std::optional<KeepPlan> plan = planner.solve(bytes), of_share = planner_of_one.solve(bytes / 16);
    ASSERT_TRUE(plan) << fraction;
    const double bound = planner.least_cost(bytes) / step.cost();
    std::printf("16 in flight at %.3f: %.3f of a forward, no less than %.3f; for a share %.3f\n", fraction,
                plan->outcome.replay_cost / step.cost(), bound,
                of_share ? of_share->outcome.replay_cost / step.cost() : -1);
    EXPECT_LE(plan->outcome.total_bytes, bytes);
    EXPECT_LE(plan->outcome.replay_cost / step.cost(), bound + 0.02);
    if (of_share && fraction < 0.75) {
      EXPECT_LT(plan->outcome.replay_cost, of_share->outcome.replay_cost) << fraction;
    }
  }
  EXPECT_FALSE(planner_of_one.solve(all * 8 / 100 / 16));
}

TEST(PlannerInFlightTest, PlansWithFormsShareTheBytesToo) {
  for (const bool copies : {false, true}) {
    Step step = transformer_step(3);
    step.graph.in_flight = 4;
    step.graph.forms.push_back(copies ? StepGraph::Queue::kCopies : StepGraph::Queue::kOps);
    for (StepGraph::Value& value : step.graph.values) {
      const double cost = copies ? 0 : static_cast<double>(value.bytes) / 10;
      value.forms.push_back({0, copies ? 0 : value.bytes / 4, cost, cost});
    }
    Planner planner(step.graph), beside(step.graph);
    FormPlanner forms(step.graph, planner, /*bytes_per_cost=*/copies ? 1 : 0);
    const int64_t all = planner.keep_all().outcome.total_bytes;
    for (const double fraction : {0.75, 0.5, 0.35}) {
      const auto bytes = static_cast<int64_t>(fraction * static_cast<double>(all));
      const std::optional<FormPlan> plan = forms.solve(bytes);
      ASSERT_TRUE(plan) << fraction;
      EXPECT_TRUE(fraction > 0.5 || plan->keep.outcome.uses_a_form()) << fraction;
      EXPECT_LE(plan->keep.outcome.total_bytes, bytes);
      EXPECT_GE(plan->keep.outcome.total_bytes, 3 * plan->keep.outcome.forward_bytes + plan->keep.outcome.peak_bytes);
      EXPECT_LE(plan->keep.outcome.extra_cost(), beside.solve(bytes)->outcome.extra_cost());
    }
    EXPECT_LE(forms.smallest().keep.outcome.total_bytes, planner.smallest().outcome.total_bytes);
  }
}

}  // namespace
}  // namespace ac2::internal
