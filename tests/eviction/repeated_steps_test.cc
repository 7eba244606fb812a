// Steps that repeat themselves under a memory budget: what is remembered of them makes later ones replay less, and
// changes no bit, also where a step departs from the ones before.
#include <functional>
#include <vector>

#include "ac2/internal/eviction/step_store.h"
#include "ac2/memory_budget.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

constexpr int64_t kElements = 1024;
constexpr int64_t kBytes = kElements * 4;
// More than it takes to try all settings out.
constexpr int kSteps = 70;

// Results of the first half are used in the second, in the opposite order.
at::Tensor u_shaped(at::Tensor x, int depth) {
  std::vector<at::Tensor> skips;
  for (int i = 0; i < depth; ++i) {
    x = x.sin().cos();
    skips.push_back(x);
    x = x.sin();
  }
  for (int i = depth - 1; i >= 0; --i) {
    x = (x.cos() * skips[i]).sin();
  }
  return x;
}

class RepeatedStepsTest : public CleanTest {
 protected:
  void SetUp() override {
    CleanTest::SetUp();
    internal::StepStore::process().forget_all();
  }

  // Runs the step under the budget, expects the bits of plain autograd, and returns how many ops were replayed.
  static int64_t replays(const std::function<at::Tensor(at::Tensor)>& step, const at::Tensor& x,
                         const MemoryBudget& budget) {
    const at::Tensor expected = gradient_of(step(x), x);
    std::shared_ptr<const Trace> trace;
    at::Tensor y;
    {
      PolicyScope scope({.memory_budget = budget});
      trace = scope.trace();
      y = step(x);
    }
    EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
    return trace->stats().recomputed_ops;
  }
};

TEST_F(RepeatedStepsTest, LaterStepsReplayLessAndNeverMoreOnceAllIsTried) {
  const at::Tensor x = sample({kElements});
  int64_t first = 0;
  int64_t last = 0;
  for (const int64_t values : {6, 8, 10, 14}) {
    const MemoryBudget budget(values * kBytes, /*modelled_costs=*/true);
    std::vector<int64_t> counts;
    for (int i = 0; i < kSteps; ++i) {
      counts.push_back(replays([](at::Tensor t) { return u_shaped(std::move(t), 10); }, x, budget));
    }
    EXPECT_GT(counts.front(), 0) << values;
    EXPECT_LE(counts.back(), counts.front()) << values;
    first += counts.front();
    last += counts.back();
  }
  EXPECT_LT(last, first);
}

TEST_F(RepeatedStepsTest, ARegionWithANumberOfItsOwnRemembersToo) {
  const at::Tensor x = sample({kElements});
  int64_t first = 0;
  int64_t last = 0;
  for (const int64_t values : {6, 8, 10, 14}) {
    for (int i = 0; i < kSteps; ++i) {
      at::Tensor y;
      std::shared_ptr<const Trace> trace;
      {
        PolicyScope scope({.memory_budget = values * kBytes, .modelled_costs = true});
        trace = scope.trace();
        y = u_shaped(x, 10);
      }
      gradient_of(y, x);
      first += i == 0 ? trace->stats().recomputed_ops : 0;
      last += i == kSteps - 1 ? trace->stats().recomputed_ops : 0;
    }
  }
  EXPECT_LT(last, first);
}

TEST_F(RepeatedStepsTest, AStepMayDepartAndReturn) {
  const at::Tensor x = sample({kElements});
  const at::Tensor smaller = sample({kElements / 2});
  const MemoryBudget budget(8 * kBytes, /*modelled_costs=*/true);
  const auto step = [](at::Tensor t) { return u_shaped(std::move(t), 10); };
  const auto branch = [](at::Tensor t) { return u_shaped(u_shaped(std::move(t), 3).exp().sin(), 9); };
  const int64_t first = replays(step, x, budget);
  int64_t last = 0;
  for (int i = 0; i < 2 * kSteps; ++i) {
    last = replays(step, x, budget);
    if (i % 5 == 0) {
      replays(branch, x, budget);
    }
    if (i % 7 == 0) {
      replays(step, smaller, budget);
    }
    if (i % 11 == 0) {
      replays([i](at::Tensor t) { return u_shaped(std::move(t), 8 + i % 5); }, x, budget);
    }
  }
  EXPECT_LE(last, first);
}

// Autograd's graph alone holds the region, which dies in the middle of its backward.
TEST_F(RepeatedStepsTest, AStepIsRememberedWhoseTraceNobodyHas) {
  const at::Tensor x = sample({kElements});
  const MemoryBudget budget(8 * kBytes, /*modelled_costs=*/true);
  at::Tensor y;
  {
    PolicyScope scope({.memory_budget = budget});
    y = u_shaped(x, 10);
  }
  y.sum().backward();
  EXPECT_GT(internal::StepStore::process().bytes(), 0);
}

TEST_F(RepeatedStepsTest, WhatIsRememberedIsBounded) {
  const at::Tensor x = sample({kElements});
  const MemoryBudget budget(4 * kBytes, /*modelled_costs=*/true);
  int64_t most = 0;
  for (int depth = 3; depth < 40; ++depth) {
    replays([depth](at::Tensor t) { return sines(std::move(t), depth); }, x, budget);
    most = std::max(most, internal::StepStore::process().bytes());
  }
  EXPECT_GT(most, 0);
  // 80 events at most, of 44 bytes with what they make, and a few uses each.
  EXPECT_LE(most, static_cast<int64_t>(internal::StepStore::kMostSteps) * 80 * 64);
}

TEST_F(RepeatedStepsTest, NothingIsRememberedWhileEverythingFits) {
  const at::Tensor x = sample({kElements});
  const MemoryBudget budget(100 * kBytes);
  for (int i = 0; i < 3; ++i) {
    replays([](at::Tensor t) { return sines(std::move(t), 10); }, x, budget);
  }
  EXPECT_EQ(internal::StepStore::process().bytes(), 0);
}

}  // namespace
}  // namespace ac2::test
