// The example that plans a GPT on meta tensors: its figures follow from the sizes, and the table has them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "ac2/testing/counting_allocator.h"
#include "examples/plan_gpt3.h"

namespace gpt {
namespace {

using ::testing::HasSubstr;

LargeGptOptions small() {
  LargeGptOptions options;
  options.layers = 24;
  options.dim = 256;
  options.heads = 8;
  options.context = 128;
  return options;
}

TEST(PlanGpt3Test, HoldsPerLayerWhatItsSizesSay) {
  ac2::testing::CountingAllocator& memory = ac2::testing::CountingAllocator::install();
  memory.reset_peak();
  const int64_t before = memory.current_bytes();
  const LayerPlans plans = plan_layers(small());
  EXPECT_LT(memory.peak_bytes() - before, 64 << 10);  // no tensor has data

  const int64_t d = 256, t = 128, heads = 8;
  EXPECT_EQ(plans.parameters, 24 * (12 * d * d + 13 * d));
  // In two bytes each: both norms' inputs and results, queries, keys and values, what is attended to, and the hidden
  // layer before and after gelu. In four: both norms' means and deviations, and attention's sums.
  const int64_t layer = 2 * t * (2 * d + 2 * d + 3 * d + d + 4 * d + 4 * d) + 4 * (4 * t + heads * t);
  const ac2::PlanSummary& none = plans.plans[0].summary;
  // The first layer's input is from outside, and no norm takes the last one's output.
  EXPECT_EQ(none.forward_bytes, 24 * layer - 2 * t * d);
  EXPECT_EQ(none.peak_bytes, none.forward_bytes);
  EXPECT_EQ(none.replayed_ops, 0);
  const ac2::PlanSummary& full = plans.plans[1].summary;
  EXPECT_EQ(full.forward_bytes, 23 * 2 * t * d);
  // Nothing wants the last of each layer's products again, a third of its arithmetic.
  EXPECT_GT(full.replay_cost, 0.6 * full.forward_cost);
  EXPECT_LT(full.replay_cost, 0.75 * full.forward_cost);
}

TEST(PlanGpt3Test, PlansCostLessThanRecomputingEachLayerAndFit) {
  const LayerPlans plans = plan_layers(small());
  ASSERT_EQ(plans.plans.size(), 7);
  const LayerPlan& full = plans.plans[1];
  double cost = 0;
  for (size_t i = 2; i < 6; ++i) {
    const LayerPlan& plan = plans.plans[i];
    EXPECT_LE(plan.summary.peak_bytes, plan.budget);
    EXPECT_GT(plan.summary.replay_cost, cost);
    cost = plan.summary.replay_cost;
    EXPECT_TRUE(plan.budget < full.summary.peak_bytes || cost < full.summary.replay_cost);
  }
  EXPECT_LE(plans.plans[6].summary.peak_bytes, full.summary.peak_bytes);
}

TEST(PlanGpt3Test, TheLargeOneIsPlannedOnAnyMachine) {
  LargeGptOptions options;
  options.budgets = {int64_t{20} << 30};
  const LayerPlans plans = plan_layers(options);
  EXPECT_EQ(plans.parameters, 96 * (int64_t{12} * 12288 * 12288 + 13 * 12288));
  EXPECT_LE(plans.plans[2].summary.peak_bytes, int64_t{20} << 30);
  std::ostringstream out;
  print_plans(out, plans);
  EXPECT_THAT(out.str(), HasSubstr("173.96 billion parameters"));
  EXPECT_THAT(out.str(), HasSubstr("| plan for 20480.00 MiB"));
}

TEST(PlanGpt3Test, NamesBadOptions) {
  LargeGptOptions options = small();
  options.heads = 7;
  EXPECT_THROW(plan_layers(options), c10::Error);
  options = small();
  options.budgets = {1000};
  try {
    plan_layers(options);
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_THAT(std::string(error.what_without_backtrace()), HasSubstr("smallest that was found takes"));
  }
}

}  // namespace
}  // namespace gpt
