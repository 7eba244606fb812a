// RecomputeScope and SaveScope: one call inside a region decided otherwise.
#include "ac2/op_scopes.h"

#include <memory>
#include <stdexcept>
#include <string>

#include "tests/support/regions.h"
#include "tests/support/warnings.h"

namespace ac2::test {
namespace {

using OpScopesTest = CleanTest;

TEST_F(OpScopesTest, SaveScopeSavesWhatItsCallComputes) {
  // sin's and cos's results for the cos and exp after them; exp's own is alive.
  auto fn = [](const Tensors& in) {
    at::Tensor a = in[0].sin();
    at::Tensor b;
    {
      SaveScope save;
      b = a.cos();
    }
    return Tensors{b.tan().sin()};
  };
  // Plain recompute_all replays sin (for cos), cos (for tan) and tan (for sin and itself).
  Stats stats = expect_same_gradients(fn, {sample({4})});
  EXPECT_EQ(stats.backward.recomputed_ops, 2);  // sin, for cos; tan, from what was saved
  EXPECT_EQ(stats.forward.saved_bytes, 2 * 4 * sizeof(float));
}

TEST_F(OpScopesTest, RecomputeScopeRecomputesWhatItsCallComputes) {
  auto fn = [](const Tensors& in) {
    at::Tensor a = in[0].sin();
    {
      RecomputeScope recompute;
      a = a.cos();
    }
    return Tensors{a.sin().cos()};
  };
  Stats stats = expect_same_gradients(fn, {sample({4})}, Policy::constant(CheckpointPolicy::PREFER_SAVE));
  EXPECT_EQ(stats.backward.recomputed_ops, 1);
  EXPECT_EQ(stats.forward.saved_bytes, 3 * 4 * sizeof(float));  // the input, and both sins
}

TEST_F(OpScopesTest, OutsideARegionTheyDoNothing) {
  at::Tensor x = sample({4});
  at::Tensor y;
  {
    SaveScope save;
    RecomputeScope recompute;  // no conflict: there is nothing to decide
    EXPECT_FALSE(is_checkpoint_enabled());
    y = x.sin().cos();
    EXPECT_EQ(live_node_count(), 0);
  }
  {
    PolicyScope scope("recompute_all");
    DisableCheckpointing disable;
    RecomputeScope recompute;
    EXPECT_FALSE(is_checkpoint_enabled());
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
}

TEST_F(OpScopesTest, EndWithTheirBlock) {
  PolicyScope scope("recompute_all");
  { RecomputeScope recompute; }
  SaveScope save;  // would conflict with a RecomputeScope still open
  at::Tensor y = sample({4}).sin();
  EXPECT_TRUE(y.defined());
}

TEST_F(OpScopesTest, AMustToTheContraryIsAConflict) {
  at::Tensor x = sample({4});
  expect_error(
      [&] {
        PolicyScope scope("must_save_all");
        RecomputeScope recompute;
        x.sin();
      },
      {"Conflicting policies", "MUST_SAVE", "MUST_RECOMPUTE"});
  expect_next_region_works();
}

TEST_F(OpScopesTest, AnExceptionLeavesTheRegionAsItWas) {
  auto fn = [](const Tensors& in) {
    try {
      SaveScope save;
      throw std::runtime_error("inside");
    } catch (const std::runtime_error&) {
    }
    return Tensors{in[0].sin().cos()};
  };
  expect_same_gradients_and_replays(fn, {sample({4})}, 1);
}

TEST_F(OpScopesTest, ClosedOutOfOrderIsAnError) {
  PolicyScope scope("recompute_all");
  auto outer = std::make_unique<SaveScope>();
  auto inner = std::make_unique<SaveScope>();
  // A unique_ptr's destructor must not throw; its pointer's owner may.
  SaveScope* first = outer.release();
  const Warnings warnings;
  expect_error([&] { delete first; }, {"PolicyScopes were closed out of order"});
  // In a unique_ptr the error would have ended the program.
  ASSERT_EQ(warnings.messages.size(), 1U);
  EXPECT_NE(warnings.messages.front().find("PolicyScopes were closed out of order"), std::string::npos);
}

}  // namespace
}  // namespace ac2::test
