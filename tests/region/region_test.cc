// Where a region begins and ends.
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using RegionTest = CleanTest;

at::Tensor sin_cos(const at::Tensor& x) {
  return x.sin().cos();
}

TEST_F(RegionTest, AdjacentRegionsRecordTracesOfTheirOwn) {
  at::Tensor x = sample({4});
  at::Tensor y, z;
  std::shared_ptr<const Trace> first, second;
  {
    PolicyScope scope("recompute_all");
    first = scope.trace();
    y = sin_cos(x);
  }
  {
    PolicyScope scope("recompute_all");
    second = scope.trace();
    z = sin_cos(y);
  }
  y.reset();
  EXPECT_EQ(first->stats().recorded_ops, 2);
  EXPECT_EQ(second->stats().recorded_ops, 2);
  // Each holds what it was entered with, and no more.
  EXPECT_EQ(first->stats().saved_bytes, 16);
  EXPECT_EQ(second->stats().saved_bytes, 16);
  EXPECT_TRUE(same_bits(gradient_of(z, x), gradient_of(sin_cos(sin_cos(x)), x)));
  // sin's result in each.
  EXPECT_EQ(first->stats().recomputed_ops, 1);
  EXPECT_EQ(second->stats().recomputed_ops, 1);
}

TEST_F(RegionTest, AScopeIsOpenedWithEmptyBraces) {
  at::Tensor x = sample({4});
  const PolicyScope scope({});
  at::Tensor y = sin_cos(x);
  EXPECT_EQ(scope.trace()->stats().saved_bytes, 32);  // it keeps what fits
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
}

TEST_F(RegionTest, OpsBetweenAndAfterRegionsAreNotRecorded) {
  at::Tensor x = sample({4});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    y = x.sin();
  }
  y = y.exp().cos();
  {
    PolicyScope scope("recompute_all");
    y = y.sin();
  }
  EXPECT_EQ(trace->stats().recorded_ops, 1);
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().exp().cos().sin(), x)));
}

TEST_F(RegionTest, AnInnerScopeRecordsIntoTheOuterTrace) {
  at::Tensor x = sample({4});
  at::Tensor y;
  PolicyScope outer("recompute_all");
  {
    PolicyScope inner("recompute_all");
    y = sin_cos(x);
    EXPECT_EQ(inner.trace()->stats().recorded_ops, 2);
  }
  EXPECT_EQ(outer.trace()->stats().recorded_ops, 2);
  y = y.exp();
  EXPECT_EQ(outer.trace()->stats().recorded_ops, 3);
}

TEST_F(RegionTest, AnInnerScopesEndChangesNothingForTheGraph) {
  expect_same_gradients_and_replays(
      [](const Tensors& in) {
        at::Tensor a;
        {
          PolicyScope inner("recompute_all");
          a = in[0].sin().cos();
        }
        return Tensors{a.sin().cos()};
      },
      // Four ops in a chain; each but the first needs the one before.
      {sample({4})}, 3);
}

TEST_F(RegionTest, AnEmptyRegionIsEmpty) {
  PolicyScope scope("recompute_all");
  EXPECT_EQ(scope.trace()->stats().recorded_ops, 0);
  EXPECT_EQ(scope.trace()->stats().live_nodes, 0);
  EXPECT_EQ(scope.trace()->stats().saved_bytes, 0);
}

TEST_F(RegionTest, ApplyReturnsWhatTheFunctionReturns) {
  at::Tensor x = sample({4});
  at::Tensor y = apply_ac_policy_fn(sin_cos, "recompute_all", x);
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(sin_cos(x), x)));

  auto [a, b] =
      apply_ac_policy_fn([](const at::Tensor& t, int k) { return std::make_pair(t.mul(k), k); }, "must_save_all", x, 3);
  EXPECT_EQ(b, 3);

  at::Tensor& same = apply_ac_policy_fn([](at::Tensor& t) -> at::Tensor& { return t; }, "recompute_all", x);
  EXPECT_EQ(&same, &x);

  bool ran = false;
  apply_ac_policy_fn([&] { ran = is_checkpoint_enabled(); }, "recompute_all");
  EXPECT_TRUE(ran);

  std::unique_ptr<int> moved =
      apply_ac_policy_fn([](std::unique_ptr<int> p) { return p; }, "recompute_all", std::make_unique<int>(7));
  EXPECT_EQ(*moved, 7);

  struct Module {
    at::Tensor forward(const at::Tensor& t) const { return t.sin().cos(); }
  } module;
  y = apply_ac_policy_fn(&Module::forward, "recompute_all", module, x);
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(sin_cos(x), x)));
}

TEST_F(RegionTest, SaysWhetherARegionIsOpen) {
  EXPECT_FALSE(is_checkpoint_enabled());
  {
    PolicyScope outer("recompute_all");
    EXPECT_TRUE(is_checkpoint_enabled());
    {
      PolicyScope inner("must_save_all");
      EXPECT_TRUE(is_checkpoint_enabled());
    }
    EXPECT_TRUE(is_checkpoint_enabled());
    {
      DisableCheckpointing disable;
      EXPECT_FALSE(is_checkpoint_enabled());
      {
        DisableCheckpointing again;
        EXPECT_FALSE(is_checkpoint_enabled());
      }
      EXPECT_FALSE(is_checkpoint_enabled());
    }
    EXPECT_TRUE(is_checkpoint_enabled());
    bool elsewhere = true;
    std::thread([&] { elsewhere = is_checkpoint_enabled(); }).join();
    EXPECT_FALSE(elsewhere);
  }
  EXPECT_FALSE(is_checkpoint_enabled());
  DisableCheckpointing outside;
  EXPECT_FALSE(is_checkpoint_enabled());
}

TEST_F(RegionTest, ReplayOfLibTorchsOpsIsNotSeenByUserCode) {
  at::Tensor x = sample({4});
  at::Tensor y;
  bool in_hook = true;
  {
    PolicyScope scope("recompute_all");
    at::Tensor s = x.sin();
    s.register_hook([&](const at::Tensor& g) {
      in_hook = is_recomputing();
      return g;
    });
    y = s.cos();
    EXPECT_FALSE(is_recomputing());
  }
  gradient_of(y, x);
  EXPECT_FALSE(in_hook);
}

TEST_F(RegionTest, DisabledOpsAreNotRecordedAndAutogradSavesAsEver) {
  at::Tensor x = sample({4});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    at::Tensor s = x.sin();
    {
      DisableCheckpointing disable;
      s = s.cos().exp();
    }
    y = s.sin();
  }
  EXPECT_EQ(trace->stats().recorded_ops, 2);
  // x for the first sin, exp's result (which is new to the region) for the last.
  EXPECT_EQ(trace->stats().saved_bytes, 32);
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos().exp().sin(), x)));
  EXPECT_EQ(trace->stats().recomputed_ops, 0);
}

TEST_F(RegionTest, BackwardInsideTheRegionIsNotRecorded) {
  at::Tensor x = sample({4});
  PolicyScope scope("recompute_all");
  at::Tensor loss = x.sin().cos().sum();  // three ops
  loss.backward();
  // And the output gradient, ones_like, which backward() makes before the engine runs.
  EXPECT_EQ(scope.trace()->stats().recorded_ops, 3 + 1);
  EXPECT_EQ(scope.trace()->stats().recomputed_ops, 1);
  EXPECT_EQ(scope.trace()->stats().recomputed_bytes, 0);
  at::Tensor gradient = x.grad();
  x.mutable_grad() = at::Tensor();
  DisableCheckpointing disable;
  x.sin().cos().sum().backward();
  EXPECT_TRUE(same_bits(gradient, x.grad()));
}

TEST_F(RegionTest, OpsAfterABackwardInsideTheRegionAreRecordedAgain) {
  at::Tensor x = sample({4});
  at::Tensor z;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    at::Tensor loss = x.sin().cos().sum();
    loss.backward();
    z = (x * x.grad()).cos();
  }
  EXPECT_EQ(trace->stats().recorded_ops, 3 + 1 + 2);  // backward() itself makes one: ones_like
  at::Tensor gradient = gradient_of(z, x);
  EXPECT_EQ(trace->stats().recomputed_ops, 2);  // sin's result, then the product
  EXPECT_TRUE(same_bits(gradient, gradient_of((x * x.grad()).cos(), x)));
}

TEST_F(RegionTest, AGraphMayBeDroppedInsideTheRegion) {
  at::Tensor x = sample({4});
  PolicyScope scope("recompute_all");
  at::Tensor y = sin_cos(x);
  y.reset();
  EXPECT_EQ(scope.trace()->stats().saved_bytes, 0);
  EXPECT_EQ(scope.trace()->stats().live_nodes, 0);
  EXPECT_EQ(live_node_count(), 0);
}

TEST_F(RegionTest, AGraphDroppedWithoutBackwardLeavesNothing) {
  std::shared_ptr<const Trace> trace;
  {
    at::Tensor x = sample({4});
    at::Tensor y;
    {
      PolicyScope scope("recompute_all");
      trace = scope.trace();
      y = sin_cos(sin_cos(x));
    }
    // Four ops in a chain; the last one's result is needed by none.
    EXPECT_EQ(trace->stats().live_nodes, 3);
    EXPECT_EQ(live_node_count(), 3);
  }
  EXPECT_EQ(trace->stats().live_nodes, 0);
  EXPECT_EQ(trace->stats().saved_bytes, 0);
  EXPECT_EQ(trace->stats().recomputed_ops, 0);
}

TEST_F(RegionTest, ThreadsHaveRegionsOfTheirOwn) {
  at::Tensor x = sample({4});
  PolicyScope scope("recompute_all");
  at::Tensor y = x.sin();
  std::thread([&] {
    x.cos().cos();  // in no region
    at::Tensor z;
    PolicyScope own("recompute_all");
    z = sin_cos(x);
    EXPECT_EQ(own.trace()->stats().recorded_ops, 2);
  }).join();
  EXPECT_EQ(scope.trace()->stats().recorded_ops, 1);
}

TEST_F(RegionTest, ManyRegionsLeaveNothing) {
  at::Tensor x = sample({4});
  at::Tensor expected = gradient_of(sin_cos(x), x);
  for (int i = 0; i < 1000; ++i) {
    at::Tensor y = apply_ac_policy_fn(sin_cos, "recompute_all", x);
    ASSERT_TRUE(same_bits(gradient_of(y, x), expected));
  }
}

}  // namespace
}  // namespace ac2::test
