// Plans of steps on a device that has the host's memory behind it: results are kept, computed again or copied, as the
// plan says.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "ac2/memory_budget.h"
#include "ac2/plan.h"
#include "tests/support/forms.h"
#include "tests/support/offload_fixture.h"

namespace ac2::test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSide = 128;
constexpr int64_t kMatrix = kSide * kSide * 4;  // bytes
constexpr int kLength = 12;
// All that the chain saves can leave and come back beside its ops.
constexpr double kFast = 100.0 * 2 * kLength * kMatrix;

class PlannedCopiesTest : public OffloadTest {
 protected:
  // Products are dear. What is between them is cheap. Both are wanted, and of the same size.
  static at::Tensor chain(at::Tensor x) {
    for (int i = 0; i < kLength; ++i) x = x.mm(x.tanh());
    return x;
  }
  using Network = std::function<at::Tensor(at::Tensor)>;

  static PlanOptions copying(std::optional<double> bytes_per_forward, int64_t min_bytes = 0) {
    return {.modelled_costs = true,
            .forms = {forms::host_memory({.min_bytes = min_bytes})},
            .copy_bytes_per_forward = bytes_per_forward};
  }
  StepPlanner planner(const PlanOptions& options, const Network& network = &chain) {
    return StepPlanner(
        [&] {
          network(x_).sum().backward();
          x_.mutable_grad().reset();
        },
        options);
  }

  struct Step {
    at::Tensor gradient;
    TraceStats forward, backward;
  };
  Step step(const Network& network, const Policy& policy, ScopeOptions options = {}) {
    Step step;
    std::shared_ptr<const Trace> trace;
    at::Tensor y;
    {
      PolicyScope scope(policy, options);
      trace = scope.trace();
      y = network(x_).sum();
    }
    step.forward = trace->stats();
    step.gradient = gradient_of_sum(y, x_).cpu();
    step.backward = trace->stats();
    return step;
  }
  at::Tensor plain(const Network& network) { return gradient_of_sum(network(x_).sum(), x_).cpu(); }

  // With no more bytes than the plan says.
  void expect_kept_promises(const Network& network, const StepPlanner::Plan& plan) {
    MemoryBudget budget(plan.summary().peak_bytes, /*modelled_costs=*/true);
    std::shared_ptr<const Trace> trace;
    at::Tensor y;
    {
      PolicyScope scope(plan, {.memory_budget = budget});
      trace = scope.trace();
      y = network(x_).sum();
    }
    EXPECT_EQ(budget.held_bytes(), plan.summary().forward_bytes);
    EXPECT_EQ(trace->stats().offloaded_bytes, use_of(plan.summary()).bytes);
    EXPECT_TRUE(same_bits(gradient_of_sum(y, x_).cpu(), plain(network)));
    EXPECT_EQ(trace->stats().recomputed_ops, plan.summary().replayed_ops);
    EXPECT_EQ(trace->stats().evicted_values, 0);
    EXPECT_EQ(trace->stats().offloaded_bytes, 0);
    EXPECT_EQ(budget.held_bytes(), 0);
  }

  static std::string text_of(const Plan& plan) {
    const std::string path = ::testing::TempDir() + "planned_copies_test.json";
    plan.save(path);
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    std::filesystem::remove(path);
    return text.str();
  }
  static Plan plan_in(const std::string& text) {
    const std::string path = ::testing::TempDir() + "planned_copies_test.json";
    std::ofstream(path) << text;
    Plan plan = Plan::load(path);
    std::filesystem::remove(path);
    return plan;
  }

  void TearDown() override {
    x_ = at::Tensor();
    OffloadTest::TearDown();
  }

  at::Tensor x_ = leaf(sample({kSide, kSide}));
};

TEST_F(PlannedCopiesTest, WhatPlansPromiseIsWhatHappens) {
  StepPlanner planner = this->planner(copying(kFast));
  const int64_t all = planner.summarize([](const auto&) { return true; }).peak_bytes;
  for (const double fraction : {0.9, 0.7, 0.5, 0.4, 0.3, 0.25}) {
    SCOPED_TRACE(fraction);
    const auto bytes = static_cast<int64_t>(fraction * static_cast<double>(all));
    const StepPlanner::Plan plan = planner.plan(bytes);
    EXPECT_LE(plan.summary().peak_bytes, bytes);
    EXPECT_GT(use_of(plan.summary()).values, 0);
    expect_kept_promises(&chain, plan);
  }
  const StepPlanner::Plan least = planner.smallest();
  EXPECT_LT(least.summary().peak_bytes, this->planner({.modelled_costs = true}).smallest().summary().peak_bytes);
  expect_kept_promises(&chain, least);
}

TEST_F(PlannedCopiesTest, CopiesTakeThePlaceOfReplaysWhereTheyAreFaster) {
  const int64_t all = planner({.modelled_costs = true}).summarize([](const auto&) { return true; }).peak_bytes;
  const PlanSummary without = planner({.modelled_costs = true}).plan(all / 2).summary();
  EXPECT_EQ(use_of(without).values, 0);
  EXPECT_EQ(use_of(without).bytes, 0);
  EXPECT_EQ(use_of(without).cost, 0);
  double last = 0;
  for (const double speed : {kFast, kFast / 100, kFast / 1000}) {
    const PlanSummary with = planner(copying(speed)).plan(all / 2).summary();
    const double cost = with.replay_cost + use_of(with).cost;
    EXPECT_LE(cost, without.replay_cost);
    EXPECT_GE(cost, last);
    last = cost;
  }
}

// The product is dear and its result as large as that of the cheap op.
TEST_F(PlannedCopiesTest, ADearResultIsCopiedAndACheapOneReplayed) {
  StepPlanner planner = this->planner(copying(kFast / 200));
  const int64_t all = planner.summarize([](const auto&) { return true; }).peak_bytes;
  const StepPlanner::Plan plan = planner.plan(all / 3);
  EXPECT_GT(use_of(plan.summary()).values, 0);
  EXPECT_GT(plan.summary().replayed_ops, 0);
  const double tanh = 1000 + 2.0 * kMatrix / 10;
  EXPECT_NEAR(plan.summary().replay_cost, static_cast<double>(plan.summary().replayed_ops) * tanh, 1);
  const PlanSummary without = this->planner({.modelled_costs = true}).plan(all / 3).summary();
  EXPECT_GT(without.replay_cost, static_cast<double>(without.replayed_ops) * tanh + 1);
  expect_kept_promises(&chain, plan);
}

// The op returns nothing: its result is the argument that it writes into.
TEST_F(PlannedCopiesTest, WhatAnOpWritesInPlaceIsCopied) {
  const Network network = [](at::Tensor x) {
    for (int i = 0; i < kLength; ++i) {
      x = x.mm(x.tanh());
      at::_foreach_mul_({x}, 0.5);
    }
    return x;
  };
  StepPlanner planner = this->planner(copying(kFast), network);
  const int64_t all = planner.summarize([](const auto&) { return true; }).peak_bytes;
  const StepPlanner::Plan plan = planner.plan(all / 2);
  EXPECT_GT(use_of(plan.summary()).values, 4);
  expect_kept_promises(network, plan);
}

TEST_F(PlannedCopiesTest, SlowCopiesGiveThePlanWithoutThem) {
  StepPlanner slow = planner(copying(1e-6)), without = planner({.modelled_costs = true});
  const int64_t all = without.summarize([](const auto&) { return true; }).peak_bytes;
  for (const int64_t part : {2, 3}) {
    const StepPlanner::Plan plan = slow.plan(all / part);
    EXPECT_EQ(use_of(plan.summary()).values, 0);
    EXPECT_EQ(text_of(plan), text_of(without.plan(all / part)));
  }
}

TEST_F(PlannedCopiesTest, TheDeviceHoldsNoMoreThanThePlanSays) {
  const Network longer = [](const at::Tensor& x) { return chain(chain(chain(x))); };
  StepPlanner planner = this->planner(copying(kFast / 20), longer);
  const int64_t all = planner.summarize([](const auto&) { return true; }).peak_bytes;
  for (const int64_t part : {2, 4}) {
    const StepPlanner::Plan plan = planner.plan(all / part);
    ASSERT_GT(use_of(plan.summary()).values, 4);
    fake_.copies_take(1e-4);  // 6.5 ms for a matrix, where an op takes one
    const int64_t before = device_bytes();
    fake_.reset_peaks();
    at::Tensor y;
    {
      PolicyScope scope(plan);
      y = longer(x_);
    }
    // Beside what the region holds: the arguments and the result of an op, which the program has.
    EXPECT_LE(fake_.peak_device_bytes() - before, all / part + 3 * kMatrix);
    fake_.reset_peaks();
    const at::Tensor gradient = gradient_of_sum(y.sum(), x_);
    // The result, the gradients before and after an op, its two terms, and what the op has taken out.
    EXPECT_LE(fake_.peak_device_bytes() - before, all / part + 6 * kMatrix);
    EXPECT_TRUE(same_bits(gradient.cpu(), plain(longer)));
  }
}

TEST_F(PlannedCopiesTest, MustDecisionsInsideTheStepStay) {
  const Network network = [](at::Tensor x) {
    x = chain(x);
    {
      PolicyScope scope("must_save_all");
      x = x.mm(x).mm(x);
    }
    {
      PolicyScope scope([](const OpContext&) { return CheckpointPolicy::MUST_RECOMPUTE; });
      x = x.mm(x).mm(x);
    }
    return chain(x);
  };
  StepPlanner planner = this->planner(copying(kFast), network);
  const int64_t all = planner.summarize([](const auto&) { return true; }).peak_bytes;
  const StepPlanner::Plan plan = planner.plan(all / 2);
  EXPECT_GT(use_of(plan.summary()).values, 0);
  // The first of those that must be recomputed is an input of the second, and the second one of what follows.
  EXPECT_GE(plan.summary().replayed_ops, 2);
  EXPECT_GE(plan.summary().forward_bytes, 2 * kMatrix);
  expect_kept_promises(network, plan);
}

TEST_F(PlannedCopiesTest, APlanOnTheCpuCannotCopy) {
  const at::Tensor x = sample({kSide, kSide});
  const std::string error = error_of([&] { StepPlanner planner([&] { chain(x).sum().backward(); }, copying(kFast)); });
  EXPECT_THAT(error, HasSubstr("no result of the step can be copied to the host's memory"));
}

TEST_F(PlannedCopiesTest, ResultsThatAreAllTooSmallAreAWarning) {
  const PlanOptions options = copying(kFast, kMatrix + 1);
  const auto warnings = warnings_of([&] {
    StepPlanner planner = this->planner(options);
    const int64_t all = planner.summarize([](const auto&) { return true; }).peak_bytes;
    EXPECT_EQ(use_of(planner.plan(all / 2).summary()).values, 0);
  });
  ASSERT_EQ(warnings.size(), 1);
  EXPECT_THAT(warnings[0], HasSubstr("forms::host_memory() has no effect"));
}

TEST_F(PlannedCopiesTest, WrongOptionsAreErrors) {
  for (const double speed : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_THAT(error_of([&] { planner(copying(speed)); }), HasSubstr("copy_bytes_per_forward must be a positive"));
  }
  EXPECT_THAT(error_of([&] { copying(kFast, -1); }), HasSubstr("OffloadOptions::min_bytes is -1"));
  EXPECT_THAT(error_of([&] { planner({.copy_bytes_per_forward = kFast}); }), HasSubstr("has no form that copies"));
}

TEST_F(PlannedCopiesTest, TheSpeedOfCopiesIsMeasuredIfNoneIsGiven) {
  const int64_t all = planner({.modelled_costs = true}).summarize([](const auto&) { return true; }).peak_bytes;
  // Measurements are blended with those before, of other tests among them.
  const auto plan_at = [&](double milliseconds_per_byte) {
    fake_.copies_take(milliseconds_per_byte);
    for (int i = 0; i < 20; ++i) {
      planner(copying(std::nullopt));
      fake_.finish();
    }
    return planner(copying(std::nullopt)).plan(all / 3);
  };
  const StepPlanner::Plan fast = plan_at(1e-9);
  EXPECT_GT(use_of(fast.summary()).values, 0);
  EXPECT_EQ(fast.summary().replayed_ops, 0);
  fake_.finish();
  const StepPlanner::Plan slow = plan_at(1);
  EXPECT_EQ(use_of(slow.summary()).values, 0);
  EXPECT_GT(slow.summary().replayed_ops, 0);
}

TEST_F(PlannedCopiesTest, OnMetaTensorsTheSpeedOfCopiesMustBeGiven) {
  const at::Tensor meta = at::empty({kSide, kSide}, at::TensorOptions().device(at::kMeta)).requires_grad_();
  const std::string error =
      error_of([&] { StepPlanner planner([&] { chain(meta).sum().backward(); }, copying(std::nullopt)); });
  EXPECT_THAT(error, HasSubstr("Give PlanOptions::copy_bytes_per_forward"));
}

TEST_F(PlannedCopiesTest, APlanThatWasMadeOnMetaTensorsIsFollowedOnTheDevice) {
  const at::Tensor meta = at::empty({kSide, kSide}, at::TensorOptions().device(at::kMeta)).requires_grad_();
  StepPlanner on_meta([&] { chain(meta).sum().backward(); }, copying(kFast));
  StepPlanner on_device = planner(copying(kFast));
  const int64_t all = on_device.summarize([](const auto&) { return true; }).peak_bytes;
  const StepPlanner::Plan plan = on_meta.plan(all / 3);
  EXPECT_GT(use_of(plan.summary()).values, 0);
  EXPECT_EQ(text_of(plan), text_of(on_device.plan(all / 3)));
  expect_kept_promises(&chain, plan);
}

TEST_F(PlannedCopiesTest, OnTheCpuAPlanThatCopiesWarnsOnceAndStaysWithinItsBytes) {
  StepPlanner planner = this->planner(copying(kFast));
  const int64_t all = planner.summarize([](const auto&) { return true; }).peak_bytes;
  const Policy policy = planner.plan(all / 3);
  const at::Tensor x = sample({kSide, kSide});
  const at::Tensor expected = gradient_of_sum(chain(x).sum(), x);
  const auto warnings = warnings_of([&] {
    for (int i = 0; i < 2; ++i) {
      MemoryBudget budget(all / 3, /*modelled_costs=*/true);
      at::Tensor y;
      std::shared_ptr<const Trace> trace;
      {
        PolicyScope scope(policy, {.memory_budget = budget});
        trace = scope.trace();
        y = chain(x).sum();
      }
      EXPECT_GT(trace->stats().evicted_values, 0);
      EXPECT_EQ(trace->stats().offloaded_bytes, 0);
      EXPECT_LE(budget.held_bytes(), all / 3);
      EXPECT_TRUE(same_bits(gradient_of_sum(y, x), expected));
    }
  });
  ASSERT_EQ(warnings.size(), 1);
  EXPECT_THAT(warnings[0], HasSubstr("not on a device that has one behind it"));
}

TEST_F(PlannedCopiesTest, WithoutPinnedMemoryResultsStayOnTheDeviceAndTheErrorSaysHowManyBytesThatTakes) {
  const StepPlanner::Plan plan = planner(copying(kFast)).plan(kLength * kMatrix);
  ASSERT_GT(use_of(plan.summary()).values, 0);
  fake_.finish();
  release_offload_memory();
  const std::string error = error_of([&] { step(&chain, plan, {.offload = OffloadOptions{.max_pinned_bytes = 0}}); });
  EXPECT_THAT(error, HasSubstr("cannot be met"));
  EXPECT_THAT(error, HasSubstr("saved by decisions that a budget does not override"));
  expect_kept_promises(&chain, plan);
}

TEST_F(PlannedCopiesTest, AProgramThatLeavesThePlanWarnsOnceAndHasTheRightGradients) {
  const StepPlanner::Plan plan = planner(copying(kFast)).plan(kLength * kMatrix);
  const Network longer = [](const at::Tensor& x) { return chain(chain(x).sin()); };
  const auto warnings = warnings_of([&] {
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(same_bits(step(longer, plan).gradient, plain(longer)));
  });
  ASSERT_EQ(warnings.size(), 1);
  EXPECT_THAT(warnings[0], HasSubstr("the program is not the one that was planned: op "));
}

TEST_F(PlannedCopiesTest, APlanThatWasReadCopiesWhatTheOneThatWasWrittenDoes) {
  const StepPlanner::Plan plan = planner(copying(kFast)).plan(kLength * kMatrix);
  ASSERT_GT(use_of(plan.summary()).values, 0);
  const std::string text = text_of(plan);
  EXPECT_THAT(text, HasSubstr("\"ac2_plan\":5"));
  EXPECT_THAT(text, HasSubstr("\"copies\":{\"min_bytes\":0,\"in_flight_bytes\":"));
  const Plan again = plan_in(text);
  EXPECT_EQ(text_of(again), text);
  EXPECT_EQ(use_of(again.summary()).bytes, use_of(plan.summary()).bytes);
  expect_kept_promises(&chain, again);
}

TEST_F(PlannedCopiesTest, APlanWithoutCopiesNamesNone) {
  const std::string text = text_of(planner({.modelled_costs = true}).plan(kLength * kMatrix));
  EXPECT_THAT(text, HasSubstr("\"ac2_plan\":5"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("copies")));
  EXPECT_EQ(text_of(plan_in(text)), text);
}

}  // namespace
}  // namespace ac2::test
