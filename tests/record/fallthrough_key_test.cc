// Another library had ac2's dispatch key skipped before ac2 could take it. In a binary of its own: what a process
// registers for a key concerns all of it.
#include <torch/library.h>

#include "tests/support/regions.h"

TORCH_LIBRARY_IMPL(_, Fake, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

namespace ac2::test {
namespace {

using FallthroughKeyTest = CleanTest;

TEST_F(FallthroughKeyTest, ARegionRecordsAndReplaysAllTheSame) {
  expect_same_gradients_and_replays([](const Tensors& in) { return Tensors{in[0].sin().cos().exp()}; }, {sample({4})},
                                    1);
}

TEST_F(FallthroughKeyTest, WhereTheKeyIsOnBeforeARegionOpsAreSkippedAsBefore) {
  const c10::impl::IncludeDispatchKeyGuard guard(c10::DispatchKey::Fake);
  const PolicyScope scope("recompute_all");
  const at::Tensor x = constant({4});
  EXPECT_TRUE(same_bits(x.sin(), at::sin(x)));
  EXPECT_EQ(scope.trace()->stats().recorded_ops, 0);
}

}  // namespace
}  // namespace ac2::test
