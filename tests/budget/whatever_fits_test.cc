// A budget without a number: memory runs out anywhere in a step, and the step goes on.
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ac2/internal/allocator/retrying_allocator.h"
#include "ac2/internal/budget/whatever_fits.h"
#include "ac2/internal/eviction/step_store.h"
#include "ac2/internal/report/shortage_note.h"
#include "ac2/memory_budget.h"
#include "ac2/policy.h"
#include "ac2/report.h"
#include "ac2/scope.h"
#include "tests/support/failing_allocator.h"
#include "tests/support/limited_allocator.h"
#include "tests/support/regions.h"
#include "tests/support/training_step.h"

namespace ac2::test {
namespace {

constexpr int64_t kElements = 1024;
constexpr int64_t kBytes = kElements * 4;
constexpr int64_t kNone = internal::LearnedLimit::kNone;

// With modelled costs, so that the same is dropped in every run.
class WhateverFitsTest : public CleanTest {
 protected:
  void SetUp() override {
    CleanTest::SetUp();
    LimitedAllocator::install();
    whatever_fits(true);  // stands in front of it
    budget().start_limit_anew();
    internal::StepStore::process().forget_all();
    drops_ = budget().hurried_drops();
  }
  void TearDown() override {
    budget().start_limit_anew();
    CleanTest::TearDown();
  }

  static internal::Budget& budget() { return *internal::whatever_fits_budget(internal::CostSource::kModelled); }
  int64_t hurried_drops() const { return budget().hurried_drops() - drops_; }

  static void in_region(const std::function<void()>& forward) {
    PolicyScope scope({.memory_budget = whatever_fits(true)});
    forward();
  }
  static void plain(const std::function<void()>& forward) { forward(); }

  LimitedAllocator& memory_ = LimitedAllocator::install();
  testing::CountingAllocator& counter_ = testing::CountingAllocator::install();
  int64_t drops_ = 0;
};

TEST_F(WhateverFitsTest, NothingIsDroppedWhileThereIsMemory) {
  TrainingStep step(at::kCPU), plain_step(at::kCPU);
  std::shared_ptr<const Trace> trace;
  for (int i = 0; i < 3; ++i) {
    plain_step.run(plain);
    step.run([&](const auto& forward) {
      PolicyScope scope({.memory_budget = whatever_fits(true)});
      trace = scope.trace();
      forward();
    });
    EXPECT_EQ(trace->stats().evicted_values, 0);
    EXPECT_EQ(trace->stats().recomputed_ops, 0);
  }
  expect_same_bits(step.state(), plain_step.state(), "state");
  EXPECT_EQ(whatever_fits(true).bytes(), kNone);
  EXPECT_EQ(hurried_drops(), 0);
}

TEST_F(WhateverFitsTest, AStepThatDoesNotFitIsDoneWithWhatThereIs) {
  at::Tensor x = sample({kElements});
  at::Tensor expected = gradient_of(sines(x, 40), x);
  std::shared_ptr<const Trace> trace;
  at::Tensor gradient;
  {
    const LimitedAllocator::Limit limit(memory_, 24 * kBytes);
    at::Tensor y;
    {
      PolicyScope scope({.memory_budget = whatever_fits(true)});
      trace = scope.trace();
      y = sines(x, 40);
    }
    gradient = gradient_of(y, x);
    EXPECT_GT(limit.refused(), 0);
  }
  EXPECT_TRUE(same_bits(gradient, expected));
  EXPECT_GT(trace->stats().evicted_values, 0);
  EXPECT_GT(hurried_drops(), 0);
  EXPECT_LE(whatever_fits(true).bytes(), 24 * kBytes);
}

// As many values as are missing, and no more: it is not all that can be dropped.
TEST_F(WhateverFitsTest, NoMoreIsDroppedThanIsMissing) {
  at::Tensor x = sample({kElements});
  PolicyScope scope({.memory_budget = whatever_fits(true)});
  at::Tensor y = sines(x, 20);
  const LimitedAllocator::Limit limit(memory_, 0);
  y = y.sin();
  EXPECT_EQ(scope.trace()->stats().evicted_values, 1);
}

TEST_F(WhateverFitsTest, AnOpOutsideOfRegionsIsGivenRoom) {
  at::Tensor x = sample({kElements});
  const at::Tensor expected = gradient_of(sines(x, 20), x);
  at::Tensor y;
  in_region([&] { y = sines(x, 20); });
  {
    const LimitedAllocator::Limit limit(memory_, kBytes);
    const at::Tensor outside = at::zeros({8 * kElements});
    EXPECT_GT(limit.refused(), 0);
  }
  EXPECT_GT(hurried_drops(), 0);
  EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
}

TEST_F(WhateverFitsTest, AnOptimizerIsGivenRoom) {
  at::Tensor x = sample({kElements});
  const at::Tensor expected = gradient_of(sines(x, 20), x);
  at::Tensor weight = sample({4 * kElements});
  weight.mutable_grad() = at::ones_like(weight);
  torch::optim::Adam optimizer({weight}, torch::optim::AdamOptions(0.1));
  at::Tensor y;
  in_region([&] { y = sines(x, 20); });
  {
    const LimitedAllocator::Limit limit(memory_, kBytes);
    optimizer.step();
    EXPECT_GT(limit.refused(), 0);
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
}

TEST_F(WhateverFitsTest, AKernelOfBackwardIsGivenRoom) {
  at::Tensor x = sample({kElements});
  const auto forward = [&] { return at::cumsum(sines(x, 20), 0); };  // of which backward keeps nothing and takes much
  const at::Tensor expected = gradient_of(forward(), x);
  at::Tensor y;
  in_region([&] { y = forward(); });
  at::Tensor gradient;
  {
    const LimitedAllocator::Limit limit(memory_, kBytes);
    gradient = gradient_of(y, x);
    EXPECT_GT(limit.refused(), 0);
  }
  EXPECT_TRUE(same_bits(gradient, expected));
}

// A write or a draw is not tried again by a region, because half of it may have happened. Here only the allocation is.
TEST_F(WhateverFitsTest, OpsThatWriteOrDrawAreGivenRoomToo) {
  at::Tensor x = sample({kElements});
  at::manual_seed(3);
  const at::Tensor drawn = at::rand_like(x);
  at::Tensor values = at::empty({0}), indices = at::empty({0}, at::kLong);
  in_region([&] {
    const at::Tensor y = sines(x, 20);
    const LimitedAllocator::Limit limit(memory_, 0);
    at::manual_seed(3);
    EXPECT_TRUE(same_bits(at::rand_like(x.detach()), drawn));
    at::sort_out(values, indices, x.detach());
    EXPECT_GT(limit.refused(), 1);
  });
  EXPECT_TRUE(same_bits(values, std::get<0>(x.detach().sort())));
}

TEST_F(WhateverFitsTest, WhatTheProgramHoldsItselfIsNotDropped) {
  at::Tensor x = sample({kElements});
  std::vector<at::Tensor> held = {x};
  PolicyScope scope({.memory_budget = whatever_fits(true)});
  for (int i = 0; i < 10; ++i) held.push_back(held.back().sin());
  {
    const LimitedAllocator::Limit limit(memory_, 0);
    expect_error([&] { held.back().sin(); }, {"out of memory", "have dropped all that they could"});
  }
  EXPECT_EQ(scope.trace()->stats().evicted_values, 0);
  EXPECT_EQ(hurried_drops(), 0);
}

TEST_F(WhateverFitsTest, WhereNothingIsLeftToDropTheErrorSaysWhatIsHeld) {
  at::Tensor x = sample({kElements});
  {
    PolicyScope scope("must_save_all", {.memory_budget = whatever_fits(true)});
    const at::Tensor y = sines(x, 10);
    const LimitedAllocator::Limit limit(memory_, 0);
    expect_error([&] { y.sin(); }, {"out of memory", "They hold 40960 bytes", "MUST be saved", "ac2's regions hold"});
    // Outside of regions too.
    const DisableCheckpointing plain;
    expect_error([&] { at::zeros({kElements}); }, {"out of memory", "They hold 36864 bytes"});
  }
  expect_next_region_works();
}

// As in a program that trains: nobody has the trace of a region, which dies in the middle of its backward.
TEST_F(WhateverFitsTest, TheNextStepDropsInTime) {
  constexpr int kSteps = 8;
  TrainingStep step(at::kCPU, {.layers = 6}), plain_step(at::kCPU, {.layers = 6});
  int64_t peak = 0;
  for (int i = 0; i < kSteps; ++i) {
    const int64_t before = counter_.current_bytes();
    counter_.reset_peak();
    plain_step.run(plain);
    peak = counter_.peak_bytes() - before;
  }
  step.run(in_region);  // and the optimizer has its state
  std::vector<int64_t> refused;
  {
    const LimitedAllocator::Limit limit(memory_, peak / 2);
    for (int i = 1; i < kSteps; ++i) {
      const int64_t so_far = limit.refused();
      step.run(in_region);
      refused.push_back(limit.refused() - so_far);
    }
  }
  expect_same_bits(step.state(), plain_step.state(), "state");
  EXPECT_GT(refused[0], 0);
  EXPECT_EQ(std::vector<int64_t>(refused.begin() + 1, refused.end()), std::vector<int64_t>(kSteps - 2, 0));
  EXPECT_LT(whatever_fits(true).bytes(), peak / 2);
  EXPECT_GT(whatever_fits(true).bytes(), peak / 8);
  std::cout << "refused " << refused[0] << "; " << whatever_fits(true).bytes() << " of " << peak << " bytes\n";
}

// The limit is not that of the late backward, where little is held.
TEST_F(WhateverFitsTest, WhatIsDroppedAtTheEndOfABackwardDoesNotLimitTheNextForward) {
  at::Tensor x = sample({kElements});
  at::Tensor first;  // the result of the fourth sine, whose gradient comes near the end
  at::Tensor z;
  in_region([&] {
    first = sines(x, 4);
    z = sines(first, 36);
  });
  first.register_hook([&](const at::Tensor&) {
    const LimitedAllocator::Limit limit(memory_, 0);
    at::zeros({kElements});
  });
  gradient_of(z, x);
  EXPECT_EQ(hurried_drops(), 1);
  EXPECT_EQ(whatever_fits(true).bytes(), kNone);
}

// --- memory that ends with the n-th allocation of a step, for each n ---

struct Ends {
  int done = 0;
  int64_t dropped = 0;
  int64_t last_error = -1;
};

TEST_F(WhateverFitsTest, EachAllocationOfAStepMayBeTheLastThatTakesMore) {
  TrainingStep plain_step(at::kCPU);
  plain_step.run(plain);
  const Tensors expected = plain_step.state();
  // What a step needs that holds nothing for backward but what one op needs: more is to be had by dropping alone.
  int64_t allocations = 0;
  int64_t least = 0;
  {
    TrainingStep step(at::kCPU);
    FailingAllocator& all = FailingAllocator::install();
    whatever_fits(true);
    const int64_t before = all.allocations();
    const int64_t bytes = counter_.current_bytes();
    counter_.reset_peak();
    step.run([](const auto& forward) {
      PolicyScope scope("recompute_all", {.memory_budget = int64_t{1} << 40});
      forward();
    });
    allocations = all.allocations() - before;
    least = counter_.peak_bytes() - bytes;
  }
  ASSERT_GT(allocations, 100);
  int done = 0, errors = 0, switched = 0;
  int64_t dropped = 0;
  for (int64_t n = 1; n <= allocations; ++n) {
    budget().start_limit_anew();
    TrainingStep step(at::kCPU);
    std::string error;
    const int64_t drops = hurried_drops();
    {
      const LimitedAllocator::LastAllocation last(memory_, n);
      try {
        step.run(in_region);
      } catch (const c10::Error& thrown) {
        error = thrown.what_without_backtrace();
      }
    }
    // On aarch64 LibTorch computes a product for which oneDNN gets no memory without it, where others throw, and all
    // products after it, for which it leaves a switch: bits are then others without ac2 too.
    const bool without_onednn = !at::globalContext().userEnabledMkldnn();
    at::globalContext().setUserEnabledMkldnn(true);
    switched += without_onednn;
    if (error.empty() && without_onednn) {
      const Tensors state = step.state();
      for (size_t i = 0; i < state.size(); ++i) EXPECT_TRUE(at::allclose(state[i], expected[i], 1e-3, 1e-5)) << n;
    } else if (error.empty()) {
      expect_same_bits(step.state(), expected, "state");
      ++done;
      dropped += hurried_drops() > drops;
    } else {
      EXPECT_NE(error.find("out of memory"), std::string::npos) << error;
      ++errors;
      // The rest of a backward that threw goes with the thread's next.
      gradient_of(sample({1}).sin(), sample({1}));
    }
    expect_nothing_left();
  }
  std::cout << done << " steps done, of them " << dropped << " with something dropped, " << errors
            << " without enough memory; oneDNN was switched off in " << switched << "; " << least << " bytes\n";
  EXPECT_GT(dropped, 20);
}

// Where each allocation fails once, what it takes is dropped, and nothing else happens.
TEST_F(WhateverFitsTest, EachAllocationOfAStepMayFailOnce) {
  TrainingStep plain_step(at::kCPU);
  plain_step.run(plain);
  const Tensors expected = plain_step.state();
  FailingAllocator& failing = FailingAllocator::install();
  whatever_fits(true);
  bool has_failed = true;
  int64_t n = 0;
  for (; has_failed; ++n) {
    budget().start_limit_anew();
    TrainingStep step(at::kCPU);
    failing.fail_after(n);
    step.run(in_region);
    has_failed = failing.has_failed();
    failing.never_fail();
    expect_same_bits(step.state(), expected, "state");
    expect_nothing_left();
  }
  EXPECT_GT(n, 100);
}

// --- threads, and the machine's memory ---

// As a machine with so much.
class Machine final : public internal::MemoryGauge {
 public:
  Machine(testing::CountingAllocator& counter, int64_t bytes)
      : counter_(counter), end_(counter.current_bytes() + bytes) {}
  // From now on it has so much less.
  void shrink_by(int64_t bytes) { end_ -= bytes; }
  internal::MemoryRoom room() const override {
    return {.bytes = std::max<int64_t>(0, end_ - counter_.current_bytes()),
            .reserve = 0,
            .limit = internal::MemoryRoom::Limit::kMachine,
            .swaps = false,
            .name = "the test"};
  }

 private:
  testing::CountingAllocator& counter_;
  int64_t end_;
};

TEST_F(WhateverFitsTest, TheMachinesMemoryIsNotExceeded) {
  constexpr int64_t kLarge = 64 * kElements;
  at::Tensor x = sample({kLarge});
  const at::Tensor expected = gradient_of(sines(x, 40), x);
  counter_.reset_peak();
  const int64_t before = counter_.current_bytes();
  internal::RetryingAllocator::set_gauge(std::make_shared<Machine>(counter_, 20 * kLarge * 4));
  at::Tensor y;
  in_region([&] { y = sines(x, 40); });
  const at::Tensor gradient = gradient_of(y, x);
  internal::RetryingAllocator::set_gauge(nullptr);
  EXPECT_TRUE(same_bits(gradient, expected));
  EXPECT_LE(counter_.peak_bytes() - before, 20 * kLarge * 4 + 1024);  // of small allocations nobody asks
}

TEST_F(WhateverFitsTest, AnErrorNamesNoNumberOfBytesThatWouldDo) {
  at::Tensor x = sample({kElements});
  PolicyScope scope("must_save_all", {.memory_budget = whatever_fits(true)});
  const at::Tensor y = sines(x, 4);
  const std::string error = internal::shortage_note(
      "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes. Error code 12", nullptr);
  EXPECT_NE(error.find("A memory_budget would not have made room for the 4.00 KiB that were asked for"),
            std::string::npos)
      << error;
  EXPECT_EQ(error.find("With a memory_budget of"), std::string::npos) << error;
}

// The room that was found is asked for again when a quarter of it has been taken, so that not all of it is overdrawn.
TEST_F(WhateverFitsTest, ALimitThatShrinksWhileAStepRunsIsMetFromThenOn) {
  constexpr int64_t kLarge = 64 * kElements;
  at::Tensor x = sample({kLarge});
  const at::Tensor expected = gradient_of(sines(x, 40), x);
  const int64_t before = counter_.current_bytes();
  const auto machine = std::make_shared<Machine>(counter_, 40 * kLarge * 4);
  internal::RetryingAllocator::set_gauge(machine);
  at::Tensor y;
  in_region([&] {
    y = sines(x, 20);
    EXPECT_EQ(hurried_drops(), 0);
    machine->shrink_by(28 * kLarge * 4);  // 12 are left, and 20 are held
    y = sines(y, 10);
    counter_.reset_peak();
    y = sines(y, 10);
  });
  EXPECT_GT(hurried_drops(), 0);
  const at::Tensor gradient = gradient_of(y, x);
  internal::RetryingAllocator::set_gauge(nullptr);
  EXPECT_TRUE(same_bits(gradient, expected));
  EXPECT_LE(counter_.peak_bytes() - before, 12 * kLarge * 4 + 1024);
}

TEST_F(WhateverFitsTest, ThreadsShareWhatThereIs) {
  constexpr int64_t kLarge = 64 * kElements;
  at::Tensor x = sample({kLarge});
  const at::Tensor expected = gradient_of(sines(x, 30), x);
  counter_.reset_peak();
  const int64_t before = counter_.current_bytes();
  internal::RetryingAllocator::set_gauge(std::make_shared<Machine>(counter_, 40 * kLarge * 4));
  std::vector<at::Tensor> gradients(3);
  std::vector<std::thread> threads;
  for (at::Tensor& gradient : gradients) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        const at::Tensor leaf = leaf_like(x);
        at::Tensor y;
        in_region([&] { y = sines(leaf, 30); });
        gradient = gradient_of(y, leaf);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  internal::RetryingAllocator::set_gauge(nullptr);
  for (const at::Tensor& gradient : gradients) EXPECT_TRUE(same_bits(gradient, expected));
  EXPECT_GT(hurried_drops(), 0);
  // Between the question and the allocation another thread may allocate too.
  EXPECT_LE(counter_.peak_bytes() - before, 46 * kLarge * 4);
}

// --- options ---

TEST_F(WhateverFitsTest, EachCallGivesTheSameBudget) {
  at::Tensor x = sample({kElements});
  const MemoryBudget first = whatever_fits(true);
  in_region([&] {
    const at::Tensor y = sines(x, 4);
    EXPECT_EQ(first.held_bytes(), 3 * kBytes);
    EXPECT_EQ(whatever_fits(true).held_bytes(), 3 * kBytes);
    EXPECT_EQ(whatever_fits().held_bytes(), 0);
  });
}

TEST_F(WhateverFitsTest, ModelledCostsAreAskedForWhereTheBudgetIsMade) {
  at::Tensor x = sample({kElements});
  expect_error([&] { PolicyScope scope({.memory_budget = whatever_fits(), .modelled_costs = true}); },
               {"modelled_costs is set with a MemoryBudget that times ops", "whatever_fits(true)"});
  PolicyScope scope({.memory_budget = whatever_fits(true), .modelled_costs = true});
}

TEST_F(WhateverFitsTest, InAScopeWithANumberTheNumberIsMet) {
  at::Tensor x = sample({kElements});
  const MemoryBudget number(8 * kBytes, /*modelled_costs=*/true);
  PolicyScope outer({.memory_budget = number});
  PolicyScope inner({.memory_budget = whatever_fits(true)});
  const at::Tensor y = sines(x, 20);
  EXPECT_LE(number.held_bytes(), 8 * kBytes);
  EXPECT_GT(outer.trace()->stats().evicted_values, 0);
}

}  // namespace
}  // namespace ac2::test
