// A scope's use of its options: with and without a policy, a budget in bytes or shared, a policy by its name.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "ac2/policy_instance.h"
#include "policies/policies.h"
#include "tests/support/regions.h"
#include "tests/support/warnings.h"

namespace ac2::test {
namespace {

using enum CheckpointPolicy;

class ScopeOptionsTest : public CleanTest {
 protected:
  // sin and cos are decided on: backward needs the result of sin, and x. What the region has done after a backward.
  TraceStats run(const ScopeOptions& options) {
    PolicyScope scope(options);
    const at::Tensor y = x_.sin().cos();
    in_forward_ = scope.trace()->stats();
    y.sum().backward();
    return scope.trace()->stats();
  }

  at::Tensor x_ = sample({64});
  TraceStats in_forward_;
};

TEST_F(ScopeOptionsTest, AScopeWithoutAPolicyKeepsWhatTheMachineHasRoomFor) {
  EXPECT_EQ(run({}).recomputed_ops, 0);
  EXPECT_EQ(run({.verify = true}).recomputed_ops, 0);
  EXPECT_EQ(run({.timeline = true}).recomputed_ops, 0);
  EXPECT_EQ(run({.modelled_costs = true}).recomputed_ops, 0);
  EXPECT_EQ(run({.offload = OffloadOptions{.inputs = true}}).recomputed_ops, 0);
  const Warnings warnings;
  EXPECT_EQ(run({.forms = {forms::one_bit()}}).recomputed_ops, 0);
  EXPECT_TRUE(warnings.messages.empty());
}

TEST_F(ScopeOptionsTest, AScopeGivenNothingIsUnderTheBudgetWithoutANumber) {
  const MemoryBudget budget = whatever_fits();
  const int64_t before = budget.held_bytes();
  at::Tensor y;
  {
    PolicyScope scope;
    y = x_.sin().cos();
    EXPECT_EQ(budget.held_bytes() - before, 64 * 4);  // what sin has made
  }
  {
    PolicyScope scope({});
    const at::Tensor z = x_.sin().cos();
    EXPECT_EQ(budget.held_bytes() - before, 2 * 64 * 4);
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x_), gradient_of(x_.sin().cos(), x_)));
  y = at::Tensor();
  EXPECT_EQ(budget.held_bytes(), before);
}

TEST_F(ScopeOptionsTest, APolicyWithoutABudgetIsUnderNone) {
  const MemoryBudget budget = whatever_fits();
  const int64_t before = budget.held_bytes();
  const PolicyScope scope(PREFER_SAVE, {.timeline = true});
  const at::Tensor y = x_.sin().cos();
  EXPECT_EQ(budget.held_bytes(), before);
}

TEST_F(ScopeOptionsTest, OptionsWithABudgetKeepWhatFits) {
  EXPECT_EQ(run({.memory_budget = 1 << 20}).recomputed_ops, 0);
  EXPECT_EQ(run({.memory_budget = 1 << 20, .verify = true, .timeline = true}).recomputed_ops, 0);
  EXPECT_EQ(run({.memory_budget = MemoryBudget(1 << 20)}).recomputed_ops, 0);
}

TEST_F(ScopeOptionsTest, ModelledCostsThatWouldHaveNoEffectAreAnError) {
  const MemoryBudget timed(1 << 20), modelled(1 << 20, /*modelled_costs=*/true);
  expect_error([&] { run({.memory_budget = timed, .modelled_costs = true}); },
               {"modelled_costs", "MemoryBudget that times ops", "MemoryBudget(bytes, true)"});
  expect_error([&] { const PolicyScope scope("recompute_all", {.modelled_costs = true}); },
               {"modelled_costs", "without a memory_budget"});
  EXPECT_EQ(run({.memory_budget = modelled, .modelled_costs = true}).recomputed_ops, 0);
  EXPECT_EQ(run({.memory_budget = 1 << 20, .modelled_costs = true}).recomputed_ops, 0);
}

TEST_F(ScopeOptionsTest, VerifyChecksReplays) {
  at::Tensor y;
  {
    PolicyScope scope("recompute_all", {.verify = true});
    y = x_.sin().cos();
  }
  x_.data_ptr<float>()[0] += 1;  // not seen by autograd: the replay of sin has another input than forward had
  expect_error([&] { y.sum().backward(); }, {"aten::sin"});
}

TEST_F(ScopeOptionsTest, AnInnerScopeSaysTheSameOfTheOpsInsideIt) {
  PolicyScope outer("recompute_all");
  const at::Tensor recomputed = x_.sin();
  at::Tensor y;
  {
    PolicyScope inner({.timeline = true});
    y = recomputed.cos().sin();
    EXPECT_EQ(whatever_fits().held_bytes(), 64 * 4);  // what cos has made; the program has the other
  }
  y.sum().backward();
  EXPECT_EQ(outer.trace()->stats().recomputed_ops, 0);  // the region is under the inner scope's budget from there on
}

TEST_F(ScopeOptionsTest, ABudgetIsBytesOrShared) {
  ScopeOptions options;
  EXPECT_FALSE(options.memory_budget.has_value());
  EXPECT_FALSE(options.memory_budget.budget());
  options.memory_budget = int64_t{2} << 30;
  EXPECT_EQ(options.memory_budget.budget()->bytes(), int64_t{2} << 30);
  const MemoryBudget shared(4096);
  options.memory_budget = shared;
  EXPECT_TRUE(options.memory_budget.has_value());
  run(options);
  {
    const at::Tensor y = [&] {
      PolicyScope scope(options);
      return x_.sin().cos();
    }();
    EXPECT_GT(shared.held_bytes(), 0);
  }
  EXPECT_EQ(shared.held_bytes(), 0);
  options.memory_budget.reset();
  EXPECT_FALSE(options.memory_budget.has_value());
  options.memory_budget = std::optional<MemoryBudget>(shared);
  EXPECT_EQ(options.memory_budget.budget()->bytes(), 4096);
  options.memory_budget = std::nullopt;
  EXPECT_FALSE(options.memory_budget.has_value());
  options.memory_budget = std::optional<int64_t>(17);
  EXPECT_EQ(options.memory_budget.budget()->bytes(), 17);
  options.memory_budget = std::optional<int64_t>();
  EXPECT_FALSE(options.memory_budget.has_value());
  options.memory_budget = {};
  EXPECT_FALSE(options.memory_budget.has_value());
}

TEST_F(ScopeOptionsTest, BytesMustBePositiveAndSaySo) {
  for (const int64_t bytes : {int64_t{0}, int64_t{-4096}, INT64_MIN}) {
    expect_error([&] { PolicyScope scope({.memory_budget = bytes}); },
                 {"memory budget", std::to_string(bytes).c_str(), "positive", "recompute_all"});
  }
  EXPECT_FALSE(is_checkpoint_enabled());
}

TEST_F(ScopeOptionsTest, APolicyByNameMeansTheSameEverywhere) {
  ASSERT_GT(policies::policy_names().size(), 2u);
  for (const std::string& name : policies::policy_names()) {
    EXPECT_EQ(Policy(name).name(), name);
    EXPECT_EQ(enter_policy(Policy(name)).name, name);
    EXPECT_EQ(policies::policy_by_name(name).name(), name);
    PolicyScope scope(name);
    x_.sin().cos().sum().backward();
  }
  PolicyScope scope("speed");
  const at::Tensor y = x_.view({8, 8}).mm(x_.view({8, 8})).sin();
  y.sum().backward();
  EXPECT_EQ(scope.trace()->stats().recomputed_ops, 0);  // the product is saved
}

TEST_F(ScopeOptionsTest, AnUnknownNameListsAllThatAreKnown) {
  for (const auto& make :
       {std::function([] { Policy("sped"); }), std::function([] { policies::policy_by_name("sped"); })}) {
    const std::string error = error_of(make);
    EXPECT_NE(error.find("Unknown policy \"sped\""), std::string::npos) << error;
    for (const std::string& name : policies::policy_names()) {
      EXPECT_NE(error.find(name), std::string::npos) << name << " in: " << error;
    }
  }
}

}  // namespace
}  // namespace ac2::test
