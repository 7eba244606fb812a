// The warning of a region that has all that it recomputes there at once, where a memory budget has no say. It is given
// once in a process, and so has a process of its own; memory_test has the case without a budget.
#include <string>

#include "ac2/memory_budget.h"
#include "ac2/scope.h"
#include "tests/support/regions.h"
#include "tests/support/warnings.h"

namespace ac2::test {
namespace {

using ReplayedAtOnceTest = CleanTest;

TEST_F(ReplayedAtOnceTest, UnderABudgetThatIsTooLargeToDecideAnythingItIsWarnedOfOnce) {
  const at::Tensor x = sample({1 << 20});  // 4 MiB
  const auto step = [&](const MemoryBudget& budget) {
    at::Tensor y;
    {
      PolicyScope scope(Policy::constant(CheckpointPolicy::MUST_RECOMPUTE), {.memory_budget = budget});
      y = sines(x, 6);
    }
    return gradient_of(y, x);
  };
  const Warnings warnings;
  const at::Tensor expected = gradient_of(sines(x, 6), x);
  EXPECT_TRUE(same_bits(step(whatever_fits()), expected));
  ASSERT_EQ(warnings.messages.size(), 1);
  EXPECT_NE(warnings.messages[0].find("had 20 MiB of one ac2 region replayed at once"), std::string::npos)
      << warnings.messages[0];
  EXPECT_NE(warnings.messages[0].find("MUST_RECOMPUTE, which no budget overrides"), std::string::npos);
  step(MemoryBudget(int64_t{1} << 40));
  EXPECT_EQ(warnings.messages.size(), 1);
}

}  // namespace
}  // namespace ac2::test
