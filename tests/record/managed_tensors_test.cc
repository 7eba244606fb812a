// Parameters whose bytes come and go between forward and backward, as FSDP's and DeepSpeed's do.
#include "ac2/internal/libtorch/managed_tensors.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ac2/memory_budget.h"
#include "ac2/policy.h"
#include "ac2/scope.h"
#include "tests/support/regions.h"
#include "tests/support/resized_parameter.h"
#include "tests/support/warnings.h"

namespace ac2::test {
namespace {

using ::testing::HasSubstr;

class ManagedTensorsTest : public CleanTest {};

at::Tensor layer(const at::Tensor& x, const at::Tensor& weight) {
  return at::gelu(at::linear(x, weight)).sin();
}

TEST_F(ManagedTensorsTest, AReplayReadsAParameterThatHasBeenGatheredAgain) {
  const auto saves_products = [](const OpContext& op) { return op.is("aten::addmm") || op.is("aten::mm"); };
  for (const Policy& policy : {Policy("recompute_all"), Policy(saves_products), Policy("must_save_all")}) {
    ResizedParameter weight(constant({8, 8}));
    const at::Tensor x = sample({4, 8}), y = leaf_like(x), plain = weight.plain();
    layer(y, plain).sum().backward();
    std::optional<PolicyScope> scope;
    scope.emplace(policy);
    const auto trace = scope->trace();
    at::Tensor loss = layer(x, weight.parameter()).sum();
    scope.reset();
    weight.let_go();
    EXPECT_EQ(trace->stats().copied_bytes, 0);
    weight.gather();
    loss.backward();
    EXPECT_TRUE(same_bits(x.grad(), y.grad()));
    EXPECT_TRUE(same_bits(weight.parameter().grad(), plain.grad()));
  }
}

TEST_F(ManagedTensorsTest, AManagedParameterIsNotHeld) {
  ResizedParameter weight(constant({64, 8}));
  const at::Tensor x = sample({4, 8});
  const PolicyScope scope("recompute_all");
  at::Tensor loss = layer(x, weight.parameter()).sum();
  EXPECT_EQ(scope.trace()->stats().saved_bytes, 4 * 8 * 4);  // x
  weight.let_go();
  weight.gather();
  loss.backward();
}

// Not what else is held, nor what a budget counts.
TEST_F(ManagedTensorsTest, AManagedParameterTakesNoneOfABudget) {
  ResizedParameter weight(constant({64, 8}));
  const at::Tensor x = sample({4, 8});
  const MemoryBudget budget(16 << 10);
  const PolicyScope scope({.memory_budget = budget});
  at::Tensor loss = layer(x, weight.parameter()).sum();
  const int64_t held = budget.held_bytes();
  weight.let_go();
  EXPECT_EQ(budget.held_bytes(), held);
  EXPECT_EQ(held, 2 * 4 * 64 * 4);  // the arguments of gelu and sin; x is the program's
  weight.gather();
  loss.backward();
}

TEST_F(ManagedTensorsTest, GatheringInsideTheRegionCopiesNothing) {
  ResizedParameter weight(constant({8, 8}));
  const at::Tensor x = sample({4, 8});
  const PolicyScope scope("recompute_all");
  at::Tensor first = layer(x, weight.parameter());
  {
    const at::NoGradGuard no_grad;
    c10::VariableVersion counter = weight.parameter().unsafeGetTensorImpl()->version_counter();
    const uint32_t before = counter.current_version();
    weight.parameter().detach().copy_(weight.parameter().detach() * 1);
    counter.set_version(before);
  }
  at::Tensor loss = (first + layer(x, weight.parameter())).sum();
  EXPECT_EQ(scope.trace()->stats().copied_bytes, 0);
  loss.backward();
}

// The error of a backward that needs a parameter which was let go of; empty if there was none.
std::string error_without_parameter(const ScopeOptions& options) {
  ResizedParameter weight(constant({8, 8}));
  const at::Tensor x = sample({4, 8});
  std::optional<PolicyScope> scope;
  scope.emplace("recompute_all", options);
  at::Tensor loss = layer(x, weight.parameter()).sum();
  scope.reset();
  weight.let_go();
  try {
    loss.backward();
  } catch (const c10::Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(ManagedTensorsTest, AnErrorNamesTheParameterThatIsNotThere) {
  const std::string error = error_without_parameter({});
  EXPECT_THAT(error, HasSubstr("the parameter weight (of unit 0)"));
  EXPECT_THAT(error, HasSubstr("let go of"));
  EXPECT_THAT(error, HasSubstr("ScopeOptions::gather_units; in Python gather_units=True"));
}

// Gathers what it is given, and counts.
struct Gathering {
  explicit Gathering(std::vector<ResizedParameter*> all) : weights(std::move(all)) {}

  ScopeOptions options() {
    return {.gather_units = [this](const std::vector<at::Tensor>& parameters) {
      for (const at::Tensor& parameter : parameters) {
        for (ResizedParameter* weight : weights) {
          if (parameter.is_same(weight->parameter())) {
            weight->gather();
            ++gathered;
          }
        }
      }
      ++calls;
    }};
  }

  std::vector<ResizedParameter*> weights;
  int calls = 0;
  int gathered = 0;
};

TEST_F(ManagedTensorsTest, AParameterThatIsNotThereIsGatheredOnceForAllReplays) {
  for (const char* policy : {"recompute_all", "must_save_all"}) {
    ResizedParameter first(constant({8, 8})), second(constant({8, 8}));
    Gathering gathering({&first, &second});
    const at::Tensor x = sample({4, 8}), y = leaf_like(x), plain_first = first.plain(), plain_second = second.plain();
    layer(layer(y, plain_first), plain_second).sum().backward();
    std::optional<PolicyScope> scope;
    scope.emplace(policy, gathering.options());
    at::Tensor loss = layer(layer(x, first.parameter()), second.parameter()).sum();
    scope.reset();
    first.let_go();
    second.let_go();
    loss.backward();
    EXPECT_EQ(gathering.calls, 2) << policy;
    EXPECT_EQ(gathering.gathered, 2) << policy;
    EXPECT_TRUE(same_bits(x.grad(), y.grad())) << policy;
    EXPECT_TRUE(same_bits(first.parameter().grad(), plain_first.grad())) << policy;
    EXPECT_TRUE(same_bits(second.parameter().grad(), plain_second.grad())) << policy;
  }
}

TEST_F(ManagedTensorsTest, NothingIsGatheredWhereTheParametersAreThere) {
  ResizedParameter weight(constant({8, 8}));
  Gathering gathering({&weight});
  const at::Tensor x = sample({4, 8});
  const PolicyScope scope("recompute_all", gathering.options());
  at::Tensor loss = layer(x, weight.parameter()).sum();
  weight.let_go();
  weight.gather();
  loss.backward();
  EXPECT_EQ(gathering.calls, 0);
}

TEST_F(ManagedTensorsTest, TheOpsOfTheFunctionThatGathersAreNotRecorded) {
  const auto recorded = [](int ops) {
    ResizedParameter weight(constant({8, 8}));
    const at::Tensor x = sample({4, 8});
    const PolicyScope scope("recompute_all", {.gather_units = [&](const std::vector<at::Tensor>&) {
                              weight.gather();
                              for (int op = 0; op < ops; ++op) {
                                at::zeros({4}).sin_();
                              }
                            }});
    at::Tensor loss = layer(x, weight.parameter()).sum();
    weight.let_go();
    loss.backward();
    return scope.trace()->stats().recorded_ops;
  };
  EXPECT_EQ(recorded(3), recorded(0));
}

TEST_F(ManagedTensorsTest, AnErrorOfTheFunctionThatGathersLeavesTheGraphAsItWas) {
  ResizedParameter weight(constant({8, 8}));
  bool fails = true;
  const at::Tensor x = sample({4, 8}), y = leaf_like(x), plain = weight.plain();
  const at::Tensor expected = gradient_of(layer(y, plain), y);
  std::optional<PolicyScope> scope;
  scope.emplace("recompute_all", ScopeOptions{.gather_units = [&](const std::vector<at::Tensor>&) {
                  TORCH_CHECK(!fails, "the network is down");
                  weight.gather();
                }});
  const at::Tensor result = layer(x, weight.parameter());
  scope.reset();
  weight.let_go();
  EXPECT_THROW(gradient_of(result, x, true), c10::Error);
  fails = false;
  EXPECT_TRUE(same_bits(gradient_of(result, x), expected));
}

TEST_F(ManagedTensorsTest, AParameterThatIsStillNotThereIsAnErrorThatNamesIt) {
  const std::string error = error_without_parameter({.gather_units = [](const std::vector<at::Tensor>&) {}});
  EXPECT_THAT(error, HasSubstr("the parameter weight (of unit 0)"));
  EXPECT_THAT(error, HasSubstr("has called ScopeOptions::gather_units"));
}

// Or else processes would gather other units, for what is still there differs between them.
TEST_F(ManagedTensorsTest, WhatIsReplayedDoesNotDependOnWhatTheProgramStillHas) {
  const auto replayed = [](bool keeps) {
    ResizedParameter weight(constant({8, 8}));
    Gathering gathering({&weight});
    const at::Tensor x = sample({4, 8});
    std::optional<PolicyScope> scope;
    scope.emplace("recompute_all", gathering.options());
    const auto trace = scope->trace();
    at::Tensor product = at::linear(x, weight.parameter());
    at::Tensor loss = at::gelu(product).sin().sum();
    if (!keeps) {
      product.reset();
    }
    scope.reset();
    weight.let_go();
    loss.backward();
    return std::pair(trace->stats().recomputed_ops, gathering.calls);
  };
  const auto kept = replayed(true);
  EXPECT_EQ(kept, replayed(false));
  EXPECT_EQ(kept.second, 1);
}

TEST_F(ManagedTensorsTest, AnInnerScopeCanHaveTheRegionGather) {
  ResizedParameter weight(constant({8, 8}));
  Gathering gathering({&weight});
  const at::Tensor x = sample({4, 8});
  std::optional<PolicyScope> scope;
  scope.emplace("recompute_all");
  at::Tensor product = at::linear(x, weight.parameter());
  {
    const PolicyScope inner("recompute_all", gathering.options());
    product = at::gelu(product).sin();
  }
  at::Tensor loss = product.sum();
  scope.reset();
  weight.let_go();
  loss.backward();
  EXPECT_EQ(gathering.calls, 1);
}

TEST_F(ManagedTensorsTest, GatheringUnderABudgetWhoseChoicesMayDifferIsWarnedOf) {
  const c10::WarningUtils::WarnAlways each_time(true);
  const auto open = [](const MemoryBudget& budget) {
    return warnings_of([&] {
      const PolicyScope scope({.memory_budget = budget, .gather_units = [](const std::vector<at::Tensor>&) {}});
    });
  };
  EXPECT_TRUE(open(MemoryBudget(1 << 20, /*modelled_costs=*/true)).empty());
  const std::vector<std::string> warnings = open(MemoryBudget(1 << 20));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("wait for each other for ever"));
}

TEST_F(ManagedTensorsTest, ABudgetWhoseChoicesMayDifferIsWarnedOfWhereAGathererOfTheProcessCommunicates) {
  internal::set_gatherer_communicates();  // for the rest of the process
  const c10::WarningUtils::WarnAlways each_time(true);
  const auto open = [](const MemoryBudget& budget) {
    return warnings_of([&] { const PolicyScope scope({.memory_budget = budget}); });
  };
  EXPECT_TRUE(open(MemoryBudget(1 << 20, /*modelled_costs=*/true)).empty());
  const std::vector<std::string> warnings = open(MemoryBudget(1 << 20));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("wait for each other for ever"));
}

// As a parameter of DeepSpeed's: it is another storage that has the bytes in backward, at another place.
TEST_F(ManagedTensorsTest, AParameterThatIsGivenItsDataAgainIsReadThere) {
  const at::Tensor data = constant({8, 8}), bias_data = constant({8});
  for (const char* policy : {"recompute_all", "must_save_all"}) {
    const at::Tensor plain = data.clone().requires_grad_(), bias = bias_data.clone().requires_grad_();
    const at::Tensor x = sample({4, 8}), y = leaf_like(x);
    at::Tensor weight = data.clone().requires_grad_();
    internal::manage_data(weight, "weight");
    at::addmm(bias, y, plain.t()).sin().sum().backward();
    std::optional<PolicyScope> scope;
    scope.emplace(policy);
    const auto trace = scope->trace();
    // As the program has it: a view of the weight is what the op takes.
    at::Tensor loss = at::addmm(bias_data, x, weight.t()).sin().sum();
    scope.reset();
    const auto gathered = weight.storage().getWeakStorageImpl();
    weight.set_data(at::empty({0}));
    EXPECT_TRUE(gathered.expired()) << policy;
    at::Tensor flat = at::empty({3 + 64});
    weight.set_data(flat.narrow(0, 3, 64).view({8, 8}));
    {
      const at::NoGradGuard no_grad;
      flat.narrow(0, 3, 64).copy_(data.flatten());
    }
    loss.backward();
    EXPECT_TRUE(same_bits(x.grad(), y.grad())) << policy;
    EXPECT_TRUE(same_bits(weight.grad(), plain.grad())) << policy;
  }
}

TEST_F(ManagedTensorsTest, AStorageIsKnownAtTheAddressOfAnEarlierOne) {
  const c10::StorageImpl* address = nullptr;
  {
    const ResizedParameter earlier(constant({8, 8}));
    address = earlier.parameter().storage().unsafeGetStorageImpl();
  }
  std::vector<at::Tensor> all;
  do {
    all.push_back(at::zeros({8, 8}));
  } while (all.back().storage().unsafeGetStorageImpl() != address && all.size() < 1000);
  if (all.back().storage().unsafeGetStorageImpl() != address) {
    GTEST_SKIP() << "this allocator does not give out the address again";
  }
  internal::manage_data(all.back(), "weight");
  EXPECT_TRUE(internal::is_managed(*all.back().storage().unsafeGetStorageImpl()));
}

TEST_F(ManagedTensorsTest, ATagOrAnOffloadedInputLeavesAManagedParameterWhereItIs) {
  ResizedParameter weight(constant({8, 8}));
  const at::Tensor x = sample({4, 8});
  const PolicyScope scope("recompute_all");
  at::Tensor loss = layer(x, weight.parameter()).sum();
  tag_with_policy(weight.parameter(), SaveWithHooks{[](const at::Tensor&) -> c10::IValue {
                                                      ADD_FAILURE() << "packed";
                                                      return c10::IValue();
                                                    },
                                                    [](const c10::IValue&) { return at::Tensor(); }});
  tag_with_policy(weight.parameter(), CheckpointPolicy::MUST_CPU_OFFLOAD);
  loss.backward();
}

// A value that an op of the region writes to a parameter is not computed again: that would write to the parameter
// itself.
TEST_F(ManagedTensorsTest, AWriteToAManagedParameterIsNotReplayed) {
  ResizedParameter weight(constant({8, 8}));
  const at::Tensor x = sample({4, 8});
  const PolicyScope scope("recompute_all");
  {
    const at::NoGradGuard no_grad;
    weight.parameter().mul_(2);
  }
  at::Tensor loss = layer(x, weight.parameter()).sum();
  const at::Tensor before = weight.parameter().detach().clone();
  loss.backward();
  EXPECT_TRUE(same_bits(weight.parameter().detach(), before));
}

}  // namespace
}  // namespace ac2::test
