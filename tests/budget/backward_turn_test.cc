// Turns among backwards that share a budget.
#include "ac2/internal/budget/backward_turn.h"

#include <torch/csrc/autograd/autograd.h>

#include <barrier>
#include <cstdint>
#include <thread>
#include <vector>

#include "ac2/internal/budget/budget.h"
#include "ac2/internal/region/budget_access.h"
#include "ac2/memory_budget.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using internal::BackwardTurn;
using internal::Tape;

// Patience doubles each time that a turn is taken away because nothing has moved for a second.
constexpr int64_t kPatience = 3;

const Tape* tape(uintptr_t number) {
  return reinterpret_cast<const Tape*>(number);  // never looked at
}

TEST(BackwardTurnTest, ABackwardThatHasEnteredTheSameTapeDoesNotWait) {
  BackwardTurn turn;
  turn.take(1, tape(64));
  turn.enter(2, tape(64));
  turn.enter(2, tape(128));
  std::thread([&] { turn.take(2, tape(128)); }).join();
  EXPECT_EQ(turn.patience(), kPatience);
  turn.leave(1);
  turn.leave(2);
}

TEST(BackwardTurnTest, ABackwardWaitsUntilTheOtherOneComesToItsTape) {
  BackwardTurn turn;
  turn.take(1, tape(64));
  std::thread waits([&] { turn.take(2, tape(128)); });
  turn.enter(1, tape(128));
  waits.join();
  EXPECT_EQ(turn.patience(), kPatience);
}

TEST(BackwardTurnTest, ABackwardWaitsUntilTheOtherOneHasEnded) {
  BackwardTurn turn;
  turn.take(1, tape(64));
  std::thread waits([&] {
    turn.take(2, tape(128));
    turn.leave(2);
  });
  turn.leave(1);
  waits.join();
  turn.take(3, tape(192));
  EXPECT_EQ(turn.patience(), kPatience);
}

class BackwardsOverOneGraphTest : public CleanTest {};

// Each of autograd's nodes is locked while it runs, also while its hook waits for a turn.
TEST_F(BackwardsOverOneGraphTest, BackwardsOverOneGraphThatReplayMuchDoNotStandStill) {
  constexpr int kThreads = 4;
  constexpr int kOps = 100;
  at::Tensor x = sample({64});
  const at::Tensor expected = gradient_of(sines(x, kOps), x);
  const MemoryBudget budget = MemoryBudget::soft(5 * 256, /*modelled_costs=*/true);
  std::vector<at::Tensor> gradients(kThreads);
  {
    at::Tensor y;
    {
      const PolicyScope scope({.memory_budget = budget});
      y = sines(x, kOps);
    }
    for (int round = 0; round < 3; ++round) {
      std::barrier start(kThreads);
      std::vector<std::thread> threads;
      for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, i] {
          start.arrive_and_wait();
          gradients[i] = gradient_of(y, x, /*retain_graph=*/true);
        });
      }
      for (std::thread& thread : threads) thread.join();
      for (const at::Tensor& gradient : gradients) EXPECT_TRUE(same_bits(gradient, expected));
    }
  }
  EXPECT_EQ(internal::BudgetAccess::budget(budget)->backward_turn().patience(), kPatience);
}

}  // namespace
}  // namespace ac2::test
