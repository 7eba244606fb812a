// A recorded step on a device with the host's memory behind it, on paper: times that can be counted by hand, and that
// they add up on random steps.
#include "benchmarks/simulator/offload_simulation.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <stdexcept>
#include <vector>

#include "benchmarks/simulator/step_simulator.h"

namespace ac2 {
namespace {

using internal::kNoId;
using internal::OffloadSimulation;
using internal::RecordedStep;
using internal::simulate;
using internal::SimulatorOptions;
using internal::StepResult;

constexpr int64_t kBytes = 10 << 20;
// At one byte a ns.
constexpr double kCopy = OffloadSimulation::kCopyNs + kBytes;

// Writes a step op by op; each op makes one value. A name stays until the step ends, which a known step does not need.
class Steps {
 public:
  Steps() { add(0, kNoId, RecordedStep::Event::kAppears, 0); }

  // Returns the number of the result; 0 is an input of no bytes.
  uint32_t run(double cost, const std::vector<uint32_t>& arguments, int64_t bytes = kBytes) {
    RecordedStep::Op op;
    op.name = "op";
    op.cost = cost;
    op.arguments = arguments;
    const auto index = static_cast<uint32_t>(step_.ops.size());
    op.results = {static_cast<uint32_t>(step_.tensors.size())};
    step_.ops.push_back(op);
    return add(bytes, index, RecordedStep::Event::kRuns, index);
  }
  const RecordedStep& step() const { return step_; }

 private:
  uint32_t add(int64_t bytes, uint32_t op, RecordedStep::Event::Kind kind, uint32_t index) {
    const auto number = static_cast<uint32_t>(step_.values.size());
    step_.values.push_back({bytes, op == kNoId});
    step_.tensors.push_back({number, op, kNoId});
    step_.events.push_back({kind, index});
    return number;
  }

  RecordedStep step_;
};

SimulatorOptions with_link(int64_t budget, bool recomputes) {
  SimulatorOptions options;
  options.budget = budget;
  options.step_known = true;
  options.link_bytes_per_ns = 1;
  options.recomputes = recomputes;
  options.give_up_at = 1e9;
  return options;
}

// a is made, then b and c of it, for which a must leave, and is taken again.
Steps three_values(double cost) {
  Steps steps;
  const uint32_t a = steps.run(cost, {0});
  const uint32_t b = steps.run(cost, {0});
  const uint32_t c = steps.run(cost, {b});
  const uint32_t d = steps.run(cost, {c}, 0);
  steps.run(cost, {a, d}, 0);
  return steps;
}

TEST(OffloadSimulationTest, WithoutOpsToHideItACopyIsWaitedForBothWays) {
  const Steps steps = three_values(1000);
  const StepResult result = simulate(steps.step(), with_link(2 * kBytes, /*recomputes=*/false));
  ASSERT_EQ(result.outcome, StepResult::kCompleted);
  EXPECT_DOUBLE_EQ(result.cost, 5 * 1000 + 2 * kCopy - 1000);  // one op runs beside the way back
  EXPECT_DOUBLE_EQ(result.waited, 2 * kCopy - 1000);
  EXPECT_EQ(result.copied_bytes, 2 * kBytes);
  EXPECT_TRUE(result.replayed.empty());
  EXPECT_EQ(result.peak_bytes, 2 * kBytes);
}

TEST(OffloadSimulationTest, WhatIsCheapToComputeAgainIsNotCopied) {
  const Steps steps = three_values(1000);
  const StepResult result = simulate(steps.step(), with_link(2 * kBytes, /*recomputes=*/true));
  ASSERT_EQ(result.outcome, StepResult::kCompleted);
  EXPECT_DOUBLE_EQ(result.cost, 6 * 1000);
  EXPECT_EQ(result.copied_bytes, 0);
  EXPECT_EQ(result.replayed, std::vector<uint32_t>{0});
}

TEST(OffloadSimulationTest, BesideLongOpsCopiesTakeNoTime) {
  for (const bool recomputes : {false, true}) {
    const Steps steps = three_values(10 * kCopy);
    const StepResult result = simulate(steps.step(), with_link(2 * kBytes, recomputes));
    ASSERT_EQ(result.outcome, StepResult::kCompleted);
    EXPECT_DOUBLE_EQ(result.cost, steps.step().cost());
    EXPECT_EQ(result.waited, 0);
    EXPECT_TRUE(result.replayed.empty());
  }
}

TEST(OffloadSimulationTest, OfAStepWithBothKindsEachValueGoesTheCheaperWay) {
  // a takes long to compute, b does not; both must leave while others are made.
  Steps steps;
  const uint32_t a = steps.run(100 * kCopy, {0});
  const uint32_t b = steps.run(1, {0});
  uint32_t last = b;
  for (int i = 0; i < 20; ++i) last = steps.run(kCopy / 2, {last});
  steps.run(1, {last, a}, 0);
  steps.run(1, {b}, 0);
  const SimulatorOptions options = with_link(2 * kBytes, /*recomputes=*/true);
  const StepResult both = simulate(steps.step(), options);
  ASSERT_EQ(both.outcome, StepResult::kCompleted);
  EXPECT_EQ(both.replayed, std::vector<uint32_t>{1});
  SimulatorOptions recompute = options;
  recompute.link_bytes_per_ns = 0;
  EXPECT_GT(simulate(steps.step(), recompute).cost, steps.step().cost() + 100 * kCopy);
  EXPECT_LE(both.cost, simulate(steps.step(), with_link(2 * kBytes, /*recomputes=*/false)).cost);
  EXPECT_LE(both.cost, steps.step().cost() + 4 * kCopy);
}

TEST(OffloadSimulationTest, WhatCanNeitherLeaveNorBeDroppedIsAnOutOfMemory) {
  const Steps steps = three_values(1000);
  const StepResult result = simulate(steps.step(), with_link(kBytes, /*recomputes=*/false));
  EXPECT_EQ(result.outcome, StepResult::kOutOfMemory);
  EXPECT_EQ(result.failed_op, 2U);  // which takes b and makes c
  EXPECT_EQ(result.missing_bytes, kBytes);
}

TEST(OffloadSimulationTest, CopiesNeedABandwidth) {
  const Steps steps = three_values(1000);
  SimulatorOptions options = with_link(2 * kBytes, true);
  options.link_bytes_per_ns = -1;
  EXPECT_THROW(simulate(steps.step(), options), std::logic_error);
}

// Forward, with skips; and backward, which takes each value once more.
Steps random_step(uint32_t seed) {
  std::minstd_rand random(seed);
  Steps steps;
  std::vector<uint32_t> made = {0};
  std::vector<std::vector<uint32_t>> taken;
  for (int i = 0; i < 60; ++i) {
    const uint32_t other = made[random() % made.size()];
    taken.push_back(other == made.back() ? std::vector{other} : std::vector{made.back(), other});
    const double cost = 1e5 * static_cast<double>(1 + random() % 200);
    made.push_back(steps.run(cost, taken.back(), static_cast<int64_t>((random() % 40) << 18)));
  }
  uint32_t gradient = steps.run(1e5, {made.back()});
  while (made.size() > 1) {
    gradient = steps.run(1e6, {gradient, made.back()});
    made.pop_back();
  }
  return steps;
}

TEST(OffloadSimulationTest, TimeIsThatOfOpsAndReplaysAndWaitsAndTheBudgetIsKept) {
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    const Steps steps = random_step(seed);
    const int64_t peak = simulate(steps.step(), {}).peak_bytes;
    for (const int64_t percent : {60, 40}) {
      for (const bool recomputes : {false, true}) {
        const SimulatorOptions options = with_link(peak * percent / 100, recomputes);
        const StepResult result = simulate(steps.step(), options);
        ASSERT_EQ(result.outcome, StepResult::kCompleted) << seed << " " << percent;
        EXPECT_LE(result.peak_bytes, options.budget);
        double replays = 0;
        for (const uint32_t op : result.replayed) replays += steps.step().ops[op].cost;
        EXPECT_NEAR(result.cost, steps.step().cost() + replays + result.waited, 1e-6 * result.cost);
        EXPECT_TRUE(recomputes || result.replayed.empty());
        const StepResult again = simulate(steps.step(), options);
        EXPECT_EQ(again.cost, result.cost);
        EXPECT_EQ(again.replayed, result.replayed);
      }
    }
  }
}

}  // namespace
}  // namespace ac2
