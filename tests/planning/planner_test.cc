// The planner against all subsets on small steps, against counts by hand, and on steps of ten thousand ops.
#include "ac2/internal/planning/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "benchmarks/networks/network_steps.h"
#include "tests/planning/random_dag.h"

namespace ac2::internal {
namespace {

using Fate = StepGraph::Fate;
using Step = NetworkStep;

Step random_chain(std::mt19937& dice, int ops) {
  Step step;
  std::vector<uint32_t> last;
  for (int i = 0; i < ops; ++i) {
    const double cost = static_cast<double>(1 + dice() % 20);
    // One after the other: compilers differ in the order in which they compute arguments.
    const auto saves = static_cast<Step::Saves>(dice() % 4);
    const auto bytes = static_cast<int64_t>(1 + dice() % 9);
    last = {step.run(cost, bytes, last, saves)};
  }
  step.backward();
  return step;
}

// The costs of all subsets.
class Subsets {
 public:
  explicit Subsets(const StepGraph& graph) {
    KeepSimulator simulator(graph);
    std::vector<uint32_t> open;
    for (uint32_t op = 0; op < graph.ops.size(); ++op) {
      if (graph.ops[op].fate == Fate::kOpen) open.push_back(op);
    }
    for (uint32_t set = 0; set < (1U << open.size()); ++set) {
      std::vector<Keep> kept(graph.ops.size(), Keep::kNothing);
      for (size_t i = 0; i < open.size(); ++i) {
        if ((set >> i & 1) != 0) kept[open[i]] = Keep::kWanted;
      }
      simulator.complete(kept);
      outcomes_.push_back(simulator.run(kept));
    }
  }
  int64_t least_bytes() const { return std::min_element(outcomes_.begin(), outcomes_.end(), by_bytes)->peak_bytes; }
  int64_t most_bytes() const { return std::max_element(outcomes_.begin(), outcomes_.end(), by_bytes)->peak_bytes; }
  double least_cost(int64_t bytes) const {
    double cost = std::numeric_limits<double>::infinity();
    for (const KeepOutcome& outcome : outcomes_) {
      if (outcome.peak_bytes <= bytes) cost = std::min(cost, outcome.replay_cost);
    }
    return cost;
  }

 private:
  static bool by_bytes(const KeepOutcome& a, const KeepOutcome& b) { return a.peak_bytes < b.peak_bytes; }
  std::vector<KeepOutcome> outcomes_;
};

TEST(PlannerTest, KeepsEverythingThatFits) {
  const Step step = sines_step(8);
  Planner planner(step.graph);
  const std::optional<KeepPlan> plan = planner.solve(7);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->outcome.replays, 0);
  EXPECT_EQ(plan->outcome.forward_bytes, 7);
  EXPECT_EQ(plan->outcome.peak_bytes, 7);
}

TEST(PlannerTest, CountsAChainAsBackwardReplaysIt) {
  const Step step = sines_step(8);
  KeepSimulator simulator(step.graph);
  std::vector<Keep> kept(8, Keep::kNothing);
  kept[2] = kept[5] = Keep::kWanted;
  simulator.complete(kept);
  const KeepOutcome outcome = simulator.run(kept);
  EXPECT_EQ(outcome.forward_bytes, 2);
  EXPECT_EQ(outcome.replays, 5);     // 0, 1, 3, 4, 6
  EXPECT_EQ(outcome.peak_bytes, 3);  // 2, 5 and 6; or 2, 3 and 4
}

TEST(PlannerTest, KeepsAResultThatOnlyReplaysTake) {
  // A small result that nothing wants, between a dear op and one that spreads it out.
  Step step;
  const uint32_t dear = step.run(1000, 1, {}, Step::kNothing);
  const uint32_t large = step.run(1, 100, {dear}, Step::kNothing);
  step.run(1, 100, {large}, Step::kInput);
  step.run(1, 90, {}, Step::kResult);
  Planner planner(step.backward());
  const std::optional<KeepPlan> plan = planner.solve(110);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->kept[0], Keep::kAll);
  EXPECT_EQ(plan->kept[1], Keep::kNothing);
  EXPECT_EQ(plan->outcome.replay_cost, 1);
  EXPECT_EQ(plan->outcome.peak_bytes, 101);
}

TEST(PlannerTest, HoldsASavedResultForPlannedReplaysOnly) {
  // The sum of a result that is saved anyway and of a kept one, twice; backward wants what is made of the sums.
  Step step;
  const uint32_t saved = step.run(1, 100, {}, Step::kNothing, Fate::kSaved);
  const uint32_t sum = step.run(1, 7, {saved}, Step::kNothing);
  const uint32_t second_sum = step.run(1, 7, {sum}, Step::kResult);
  step.run(1, 5, {second_sum}, Step::kResult);
  KeepSimulator simulator(step.backward());
  const auto outcome = [&](std::vector<Keep> kept, const std::vector<uint8_t>& expected_final) {
    simulator.complete(kept);
    EXPECT_EQ(simulator.final_ops(kept), expected_final);
    return simulator.run(kept);
  };
  const KeepOutcome all =
      outcome({Keep::kNothing, Keep::kNothing, Keep::kWanted, Keep::kWanted}, {/*saved=*/0, 1, 1, 0});
  EXPECT_EQ(all.forward_bytes, 7 + 5);
  EXPECT_EQ(all.replays, 0);
  // The replay of the second sum, for the last op's result or for itself, takes the saved result.
  const KeepOutcome less = outcome({Keep::kNothing, Keep::kNothing, Keep::kNothing, Keep::kWanted}, {0, 0, 0, 0});
  EXPECT_EQ(less.forward_bytes, 100 + 5);
  EXPECT_EQ(less.replays, 2);
}

TEST(PlannerTest, SavesNothingForGoodThatIsGoneBeforeBackward) {
  Step step;
  const uint32_t saved = step.run(1, 100, {}, Step::kNothing, Fate::kSaved);
  const uint32_t sum = step.run(1, 7, {saved}, Step::kNothing);
  step.run(1, 5, {}, Step::kResult);
  step.graph.events.push_back({StepGraph::Event::kDies, sum});
  KeepSimulator simulator(step.backward());
  std::vector<Keep> kept(3, Keep::kWanted);
  simulator.complete(kept);
  EXPECT_EQ(simulator.final_ops(kept), (std::vector<uint8_t>{0, 0, 0}));
}

// The output of a pipeline's stage, say: nothing wants it, and the region would hold what it was made from.
TEST(PlannerTest, HoldsNothingForAResultThatIsThereAndThatNothingWants) {
  Step step;
  const uint32_t saved = step.run(1, 100, {}, Step::kNothing, Fate::kSaved);
  const uint32_t sum = step.run(1, 7, {saved}, Step::kNothing);
  step.run(1, 9, {sum}, Step::kNothing);
  step.run(1, 5, {}, Step::kResult);
  KeepSimulator simulator(step.backward());
  std::vector<Keep> kept(4, Keep::kWanted);
  simulator.complete(kept);
  EXPECT_EQ(simulator.final_ops(kept), (std::vector<uint8_t>{0, 1, 1, 0}));
  EXPECT_EQ(simulator.run(kept).forward_bytes, 5);
}

TEST(PlannerTest, IsExactOnChains) {
  std::mt19937 dice(1);
  for (int round = 0; round < 150; ++round) {
    const Step step = random_chain(dice, 4 + static_cast<int>(dice() % 8));
    const Subsets subsets(step.graph);
    Planner planner(step.graph);
    EXPECT_EQ(planner.smallest().outcome.peak_bytes, subsets.least_bytes()) << "round " << round;
    for (int64_t bytes = subsets.least_bytes(); bytes <= subsets.most_bytes(); ++bytes) {
      const std::optional<KeepPlan> plan = planner.solve(bytes);
      ASSERT_TRUE(plan) << "round " << round << ", " << bytes << " bytes";
      EXPECT_LE(plan->outcome.peak_bytes, bytes);
      EXPECT_EQ(plan->outcome.replay_cost, subsets.least_cost(bytes)) << "round " << round << ", " << bytes << " bytes";
    }
    EXPECT_FALSE(planner.solve(subsets.least_bytes() - 1));
  }
}

// How far from the best it may be elsewhere: see docs/budget.md.
TEST(PlannerTest, IsNearTheBestOnRandomGraphs) {
  std::mt19937 dice(2);
  int solved = 0, best = 0, missed = 0;
  double worst = 0, sum = 0;
  for (int round = 0; round < 150; ++round) {
    const Step step = random_dag(dice, 5 + static_cast<int>(dice() % 8));
    const Subsets subsets(step.graph);
    Planner planner(step.graph);
    for (int64_t bytes = subsets.least_bytes(); bytes <= subsets.most_bytes(); ++bytes) {
      const std::optional<KeepPlan> plan = planner.solve(bytes);
      if (!plan) {
        ++missed;
        continue;
      }
      EXPECT_LE(plan->outcome.peak_bytes, bytes);
      const double above = (plan->outcome.replay_cost - subsets.least_cost(bytes)) / step.cost();
      ++solved;
      best += above == 0 ? 1 : 0;
      sum += above;
      worst = std::max(worst, above);
    }
  }
  std::printf("%d budgets: %d best, %d missed; above the best by %.4f of a forward on average, %.3f at most\n",
              solved + missed, best, missed, sum / solved, worst);
  EXPECT_GE(best, solved * 97 / 100);
  EXPECT_LE(missed, (solved + missed) / 100);
  EXPECT_LE(sum / solved, 0.001);
  EXPECT_LE(worst, 0.15);
}

// Above what no plan can be below, by shares of a forward.
TEST(PlannerTest, IsNearTheBoundOnNetworks) {
  struct Case {
    const char* name;
    Step step;
    double most[4];
  };
  for (const Case& network :
       {Case{"transformer", transformer_step(24), {0.01, 0.02, 0.02, 0.02}},
        Case{"U-shaped", u_shaped_step(6), {0.01, 0.1, 0, 0}}, Case{"LSTM", lstm_step(64), {0.01, 0.16, 0.08, 0.08}}}) {
    Planner planner(network.step.graph);
    const int64_t all = planner.keep_all().outcome.peak_bytes;
    std::printf("%s: smallest %.3f of what is held without recomputation\n", network.name,
                static_cast<double>(planner.smallest().outcome.peak_bytes) / static_cast<double>(all));
    int i = 0;
    for (const double fraction : {0.75, 0.5, 0.25, 0.125}) {
      const auto bytes = static_cast<int64_t>(fraction * static_cast<double>(all));
      const double most = network.most[i++];
      const std::optional<KeepPlan> plan = planner.solve(bytes);
      if (!plan) {
        EXPECT_LT(bytes, planner.smallest().outcome.peak_bytes);
        continue;
      }
      const double cost = plan->outcome.replay_cost / network.step.cost();
      const double bound = planner.least_cost(bytes) / network.step.cost();
      std::printf("%s at %.3f: %.3f of a forward, no less than %.3f\n", network.name, fraction, cost, bound);
      EXPECT_GE(cost, bound - 1e-9);
      EXPECT_LE(cost, bound + most);
    }
  }
}

TEST(PlannerTest, AChainTakesTheSquareRootOfItsLengthAtLeast) {
  for (const int n : {101, 401, 1601}) {
    const Step step = sines_step(n);
    Planner planner(step.graph);
    // k kept before the last stretch of k: k (k + 1) / 2 ≥ n values in all.
    const double least = std::sqrt(2.0 * n);
    EXPECT_NEAR(static_cast<double>(planner.smallest().outcome.peak_bytes), least, 2) << n;
    EXPECT_LT(planner.smallest().outcome.replays, n);
  }
}

TEST(PlannerTest, PlansTenThousandOpsWithinTheirBytes) {
  const Step step = sines_step(10000);
  Planner planner(step.graph);
  double last = std::numeric_limits<double>::infinity();
  for (const int64_t bytes : {160, 500, 2500, 7500}) {
    const std::optional<KeepPlan> plan = planner.solve(bytes);
    ASSERT_TRUE(plan) << bytes;
    EXPECT_LE(plan->outcome.peak_bytes, bytes);
    EXPECT_LT(plan->outcome.replay_cost, last);
    // All that is kept is not replayed; besides, a stretch must fit on top.
    EXPECT_LE(plan->outcome.replay_cost, 10000.0 - static_cast<double>(bytes) / 2);
    last = plan->outcome.replay_cost;
  }
}

TEST(PlannerTest, PlansATransformerOfTenThousandOpsWithinItsBytes) {
  const Step step = transformer_step(1100);
  Planner planner(step.graph);
  const int64_t bytes = planner.keep_all().outcome.peak_bytes / 2;
  const std::optional<KeepPlan> plan = planner.solve(bytes);
  ASSERT_TRUE(plan);
  EXPECT_LE(plan->outcome.peak_bytes, bytes);
  EXPECT_LE(plan->outcome.replay_cost, 0.13 * step.cost());
}

TEST(PlannerTest, TheSameStepHasTheSamePlan) {
  std::mt19937 dice(3);
  const Step step = random_dag(dice, 60);
  std::vector<std::vector<Keep>> plans;
  for (int run = 0; run < 3; ++run) {
    Planner planner(step.graph);
    const std::optional<KeepPlan> plan = planner.solve(planner.keep_all().outcome.peak_bytes / 2);
    ASSERT_TRUE(plan);
    plans.push_back(plan->kept);
  }
  EXPECT_EQ(plans[1], plans[0]);
  EXPECT_EQ(plans[2], plans[0]);
}

TEST(PlannerTest, AStepThatSavesNothingHoldsNothing) {
  const StepGraph nothing;
  Planner planner(nothing);
  const std::optional<KeepPlan> plan = planner.solve(1);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->outcome.peak_bytes, 0);
}

}  // namespace
}  // namespace ac2::internal
