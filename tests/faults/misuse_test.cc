// Scopes closed where or when they must not be, and options that are not to be had.
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using MisuseTest = CleanTest;

TEST_F(MisuseTest, ClosingTheOuterScopeFirstIsAnErrorAndTheInnerOneGoesOn) {
  at::Tensor x = sample({4});
  auto* outer = new PolicyScope("must_save_all");
  auto* inner = new PolicyScope("recompute_all");
  at::Tensor a = x.sin();
  EXPECT_NE(error_of([&] { delete outer; }), "");
  EXPECT_TRUE(is_checkpoint_enabled());
  // Nothing recorded is lost, and from here on the inner scope's policy decides alone.
  at::Tensor y = a.cos().cos();
  EXPECT_EQ(inner->trace()->stats().recorded_ops, 3);
  std::shared_ptr<const Trace> trace = inner->trace();
  delete inner;
  a.reset();
  EXPECT_FALSE(is_checkpoint_enabled());
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos().cos(), x)));
  EXPECT_EQ(trace->stats().recomputed_ops, 1);  // the first cos; sin's result was saved
  expect_next_region_works();
}

TEST_F(MisuseTest, ClosingAMiddleScopeLeavesTheOthers) {
  at::Tensor x = sample({4});
  PolicyScope outer("recompute_all");
  auto* middle = new PolicyScope(Policy::constant(CheckpointPolicy::MUST_RECOMPUTE));
  {
    PolicyScope inner("recompute_all");
    EXPECT_NE(error_of([&] { delete middle; }), "");
    x.sin();
    // With `middle` still there this would be a conflict.
    PolicyScope innermost("must_save_all");
    x.cos();
  }
  EXPECT_TRUE(is_checkpoint_enabled());
  EXPECT_EQ(outer.trace()->stats().recorded_ops, 2);
}

TEST_F(MisuseTest, ClosingAScopeOnAnotherThreadIsAnErrorThere) {
  at::Tensor x = sample({4});
  auto* scope = new PolicyScope("recompute_all");
  std::shared_ptr<const Trace> trace = scope->trace();
  at::Tensor y = x.sin().cos();
  std::string message;
  std::thread([&] {
    message = error_of([&] { delete scope; });
    expect_next_region_works();
  }).join();
  EXPECT_NE(message.find("thread"), std::string::npos) << message;
  // It is closed all the same.
  EXPECT_FALSE(is_checkpoint_enabled());
  x.sin();
  EXPECT_EQ(trace->stats().recorded_ops, 2);
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
  EXPECT_EQ(trace->stats().recomputed_ops, 1);
  expect_next_region_works();
}

TEST_F(MisuseTest, ClosingAnInnerScopeOnAnotherThreadLeavesTheOuter) {
  at::Tensor x = sample({4});
  PolicyScope outer("recompute_all");
  auto* inner = new PolicyScope(Policy::constant(CheckpointPolicy::MUST_RECOMPUTE));
  std::thread([&] { EXPECT_NE(error_of([&] { delete inner; }), ""); }).join();
  EXPECT_TRUE(is_checkpoint_enabled());
  PolicyScope other("must_save_all");  // no conflict: MUST_RECOMPUTE is gone
  x.sin().cos();
  EXPECT_EQ(outer.trace()->stats().recorded_ops, 2);
}

TEST_F(MisuseTest, AThreadThatEndsWithAnOpenScopeDisturbsNobody) {
  PolicyScope* scope = nullptr;
  at::Tensor x = sample({4});
  at::Tensor y;
  std::thread([&] {
    scope = new PolicyScope;
    y = x.sin().cos();
  }).join();
  EXPECT_FALSE(is_checkpoint_enabled());
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
  EXPECT_NE(error_of([&] { delete scope; }), "");
  expect_next_region_works();
}

TEST_F(MisuseTest, ClosingOutOfOrderWhileUnwindingKeepsTheFirstException) {
  struct Owner {
    PolicyScope* scope;
    ~Owner() noexcept(false) { delete scope; }
  };
  try {
    Owner first{new PolicyScope};
    Owner second{new PolicyScope};
    std::swap(first.scope, second.scope);
    throw std::runtime_error("the user's own");
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the user's own");
  }
  expect_next_region_works();
}

TEST_F(MisuseTest, AMemoryBudgetMustBePositive) {
  for (int64_t bytes : {0, -4096}) {
    expect_error([&] { PolicyScope scope("recompute_all", {.memory_budget = bytes}); },
                 {"memory budget", std::to_string(bytes).c_str(), "positive"});
    expect_error([&] { MemoryBudget budget(bytes); }, {"memory budget", "positive"});
  }
  EXPECT_FALSE(is_checkpoint_enabled());
  expect_next_region_works();
}

TEST_F(MisuseTest, ARefusedInnerScopeLeavesTheOuter) {
  at::Tensor x = sample({4});
  PolicyScope outer("recompute_all");
  error_of([] { PolicyScope inner("recompute_all", {.memory_budget = 0}); });
  error_of([] { PolicyScope inner(Policy::factory([]() -> PolicyFn { return {}; })); });
  EXPECT_TRUE(is_checkpoint_enabled());
  x.sin();
  EXPECT_EQ(outer.trace()->stats().recorded_ops, 1);
}

}  // namespace
}  // namespace ac2::test
