// An allocation that fails in a region with a memory budget: what can be dropped is dropped, and the op tried once
// more.
#include <memory>

#include "ac2/memory_budget.h"
#include "tests/support/limited_allocator.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

constexpr int64_t kElements = 1024;
constexpr int64_t kBytes = kElements * 4;
constexpr int64_t kNoLimit = int64_t{1} << 40;

at::Tensor sines(at::Tensor x, int n) {
  for (int i = 0; i < n; ++i) x = x.sin();
  return x;
}

class OutOfMemoryTest : public CleanTest {
 protected:
  LimitedAllocator& memory_ = LimitedAllocator::install();
};

TEST_F(OutOfMemoryTest, AStepThatDoesNotFitIsDoneWithWhatThereIs) {
  at::Tensor x = sample({kElements});
  at::Tensor expected = gradient_of(sines(x, 40), x);
  std::shared_ptr<const Trace> trace;
  at::Tensor gradient;
  {
    const LimitedAllocator::Limit limit(memory_, 24 * kBytes);
    at::Tensor y;
    {
      PolicyScope scope({.memory_budget = kNoLimit});
      trace = scope.trace();
      y = sines(x, 40);
    }
    EXPECT_EQ(limit.refused(), 1);  // from then on the budget is below what there was
    gradient = gradient_of(y, x);
    EXPECT_EQ(limit.refused(), 1);
  }
  EXPECT_TRUE(same_bits(gradient, expected));
  EXPECT_GT(trace->stats().evicted_values, 0);
}

TEST_F(OutOfMemoryTest, AReplayIsTriedOnceMoreToo) {
  at::Tensor x = sample({kElements});
  at::Tensor expected = gradient_of(sines(x, 24), x);
  at::Tensor y;
  {
    PolicyScope scope(Policy::constant(CheckpointPolicy::MUST_RECOMPUTE), {.memory_budget = kNoLimit});
    y = sines(x, 24);
  }
  at::Tensor gradient;
  {
    const LimitedAllocator::Limit limit(memory_, 12 * kBytes);
    gradient = gradient_of(y, x);
    EXPECT_EQ(limit.refused(), 1);
  }
  EXPECT_TRUE(same_bits(gradient, expected));
}

TEST_F(OutOfMemoryTest, WhereNothingCanBeDroppedTheErrorArrives) {
  at::Tensor x = sample({kElements});
  {
    const LimitedAllocator::Limit limit(memory_, 8 * kBytes);
    expect_error(
        [&] {
          PolicyScope scope("must_save_all", {.memory_budget = kNoLimit});
          sines(x, 20);
        },
        {"out of memory"});
    expect_error(
        [&] {
          PolicyScope scope(Policy::constant(CheckpointPolicy::PREFER_SAVE));  // without a budget nothing can be
          sines(x, 20);
        },
        {"out of memory"});
  }
  expect_next_region_works();
}

TEST_F(OutOfMemoryTest, AnOpTooLargeByItselfFailsAndLosesNothing) {
  at::Tensor x = sample({kElements});
  at::Tensor expected = gradient_of(sines(x, 6), x);
  at::Tensor y;
  {
    const LimitedAllocator::Limit limit(memory_, 10 * kBytes);
    PolicyScope scope({.memory_budget = kNoLimit});
    y = sines(x, 6);
    expect_error([&] { at::outer(x, x); }, {"out of memory"});
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
}

// Half of the write, or of the draws, may have happened.
TEST_F(OutOfMemoryTest, AnOpThatWritesOrDrawsIsNotTriedAgain) {
  at::Tensor x = sample({kElements}).detach();
  at::Tensor values = at::empty({0}), indices = at::empty({0}, at::kLong);
  PolicyScope scope({.memory_budget = kNoLimit});
  at::Tensor held = sines(sample({kElements}), 4);
  const LimitedAllocator::Limit limit(memory_, 0);
  expect_error([&] { at::sort_out(values, indices, x); }, {"out of memory"});
  EXPECT_EQ(limit.refused(), 1);
  expect_error([&] { at::rand_like(x); }, {"out of memory"});
  EXPECT_EQ(limit.refused(), 2);
}

}  // namespace
}  // namespace ac2::test
