// A bound on the peak: what regions hold, what the program holds itself, gradients and the kernels' own memory
// together.
#include <c10/core/CPUAllocator.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ac2/internal/allocator/counted_memory.h"
#include "ac2/memory_budget.h"
#include "ac2/scope.h"
#include "ac2/testing/counting_allocator.h"
#include "tests/budget/counted_peaks.h"
#include "tests/budget/gru.h"
#include "tests/support/regions.h"
#include "tests/support/training_step.h"
#include "tests/support/warnings.h"

namespace ac2::test {
namespace {

constexpr int64_t kElements = 1024;
constexpr int64_t kBytes = kElements * 4;

class PeakTest : public CountedPeaksTest {
 protected:
  static int64_t counted() { return internal::CountedMemory::get().bytes(); }
  // With modelled costs, so that the same is dropped in every run.
  static MemoryBudget on_top(int64_t bytes) { return MemoryBudget::peak(counted() + bytes, /*modelled_costs=*/true); }
};

TEST_F(PeakTest, WhatTensorsHoldIsCounted) {
  const int64_t before = counted();
  at::Tensor x = at::empty({100}, at::kByte);
  EXPECT_EQ(counted() - before, 100);
  at::Tensor view = x.view({10, 10});
  x.resize_({300});
  EXPECT_EQ(counted() - before, 300);
  x = view = at::Tensor();
  EXPECT_EQ(counted(), before);
  void* const raw = c10::GetCPUAllocator()->raw_allocate(64);
  EXPECT_EQ(counted() - before, 64);
  c10::GetCPUAllocator()->raw_deallocate(raw);
  EXPECT_EQ(counted(), before);
  std::thread([&] { x = at::empty({200}, at::kByte); }).join();
  EXPECT_EQ(counted() - before, 200);
  x = at::Tensor();
  EXPECT_EQ(counted(), before);
}

TEST_F(PeakTest, NothingIsDroppedWhileThereIsRoomAndThenAsMuchAsIsMissing) {
  at::Tensor x = sample({kElements});
  const MemoryBudget budget = on_top(10 * kBytes);
  PolicyScope scope({.memory_budget = budget});
  at::Tensor y = sines(x, 10);
  EXPECT_EQ(scope.trace()->stats().evicted_values, 0);
  y = y.sin();
  EXPECT_EQ(scope.trace()->stats().evicted_values, 1);
  EXPECT_EQ(budget.times_over(), 0);
}

TEST_F(PeakTest, WhatTheProgramAllocatesItselfMakesRegionsDrop) {
  at::Tensor x = sample({kElements});
  const at::Tensor expected = gradient_of(sines(x, 20), x);
  const MemoryBudget budget = on_top(24 * kBytes);
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope({.memory_budget = budget});
    trace = scope.trace();
    y = sines(x, 20);
  }
  EXPECT_EQ(trace->stats().evicted_values, 0);
  {
    const at::Tensor mine = at::zeros({12 * kElements});
    EXPECT_EQ(trace->stats().evicted_values, 8);
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
  EXPECT_EQ(budget.times_over(), 0);
}

TEST_F(PeakTest, WhereNothingCanBeDroppedMoreIsAllocatedAndWarnedOfOnce) {
  const MemoryBudget budget = on_top(2 * kBytes);
  const Warnings warnings;
  at::Tensor x = at::zeros({kElements}), y = at::zeros({kElements});
  EXPECT_EQ(budget.times_over(), 0);
  at::Tensor z = at::zeros({kElements}), w = at::zeros({kElements});
  EXPECT_EQ(budget.times_over(), 2);
  EXPECT_EQ(budget.most_bytes_over(), 2 * kBytes);
  ASSERT_EQ(warnings.messages.size(), 1);
  EXPECT_NE(warnings.messages[0].find("is exceeded, by 4096 bytes"), std::string::npos) << warnings.messages[0];
}

TEST_F(PeakTest, ABudgetThatIsGoneBoundsNothing) {
  at::Tensor x = sample({kElements});
  { const MemoryBudget budget = on_top(kBytes); }
  PolicyScope scope({.memory_budget = on_top(100 * kBytes)});
  const at::Tensor y = sines(x, 20);
  EXPECT_EQ(scope.trace()->stats().evicted_values, 0);
}

TEST_F(PeakTest, TheSmallestBudgetThatLivesRulesAndAllOfThemDrop) {
  at::Tensor x = sample({kElements});
  const MemoryBudget large = on_top(100 * kBytes), small = on_top(10 * kBytes);
  PolicyScope scope({.memory_budget = large});
  const at::Tensor y = sines(x, 20);
  EXPECT_GT(scope.trace()->stats().evicted_values, 0);
  EXPECT_EQ(small.times_over() + large.times_over(), 0);
}

TEST_F(PeakTest, ABoundThatComesInTheMiddleOfAStepIsMetFromThenOn) {
  at::Tensor x = sample({kElements});
  const at::Tensor expected = gradient_of(sines(x, 40), x);
  const int64_t before = counter_.current_bytes();
  const MemoryBudget large = on_top(100 * kBytes);
  at::Tensor y;
  {
    PolicyScope scope({.memory_budget = large});
    y = sines(x, 20);
    const MemoryBudget small = on_top(-8 * kBytes);  // 20 are held, of which 12 may be
    y = sines(y, 1);
    counter_.reset_peak();
    y = sines(y, 19);
    EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
    EXPECT_EQ(small.times_over() + large.times_over(), 0);
  }
  EXPECT_LE(counter_.peak_bytes() - before, 13 * kBytes);
}

// It cannot be met, and all is computed all the same.
TEST_F(PeakTest, ABoundBelowWhatParametersAndGradientsTakeIsWarnedOfOnceAndTheStepIsDone) {
  TrainingStep plain_step(at::kCPU), step(at::kCPU);
  int64_t of_parameters = 0;
  for (const at::Tensor& parameter : step.parameters()) of_parameters += storage_bytes(parameter);
  const MemoryBudget budget = MemoryBudget::peak(of_parameters, /*modelled_costs=*/true);
  const Warnings warnings;
  for (int i = 0; i < 3; ++i) {
    plain_step.run([](const auto& forward) { forward(); });
    step.run([&](const auto& forward) {
      PolicyScope scope({.memory_budget = budget});
      forward();
    });
  }
  expect_same_bits(step.state(), plain_step.state(), "state");
  EXPECT_GT(budget.times_over(), 0);
  EXPECT_GT(budget.most_bytes_over(), of_parameters);
  ASSERT_EQ(warnings.messages.size(), 1);
  EXPECT_NE(warnings.messages[0].find("is what they cannot drop: parameters, gradients"), std::string::npos)
      << warnings.messages[0];
}

// Each replay would drop what the next one needs.
TEST_F(PeakTest, WhereReplaysComputeTheSameOverAndOverMoreIsAllocatedInstead) {
  const Gru network(24, 16, 64, 64);
  const std::vector<at::Tensor> expected = torch::autograd::grad({network.forward()}, network.weights);
  const Warnings warnings;
  const MemoryBudget budget = on_top(300'000);  // a third of what forward holds
  for (int i = 0; i < 2; ++i) {
    std::shared_ptr<const Trace> trace;
    at::Tensor y;
    {
      PolicyScope scope({.memory_budget = budget});
      trace = scope.trace();
      y = network.forward();
    }
    expect_same_bits(torch::autograd::grad({y}, network.weights), expected, "gradients");
    EXPECT_LT(trace->stats().recomputed_ops, 16 * trace->stats().recorded_ops);
  }
}

TEST_F(PeakTest, OnlyAPositiveNumberIsAPeak) {
  expect_error([] { MemoryBudget::peak(0); }, {"must be a positive number of bytes, but is 0"});
  expect_error([] { MemoryBudget::peak(-1); }, {"must be a positive number of bytes, but is -1"});
  EXPECT_EQ(MemoryBudget::peak(1234).bytes(), 1234);
}

TEST_F(PeakTest, AWholeStepWithItsOptimizerStaysWithinIt) {
  constexpr int kSteps = 5;
  TrainingStep plain_step(at::kCPU), step(at::kCPU);
  int64_t plain_peak = 0;
  for (int i = 0; i < kSteps; ++i) {
    plain_peak = peak_of([&] { plain_step.run([](const auto& forward) { forward(); }); });
  }
  step.run([](const auto& forward) { forward(); });
  const MemoryBudget budget = on_top(plain_peak / 2);
  int64_t peak = 0;
  for (int i = 1; i < kSteps; ++i) {
    peak = std::max(peak, peak_of([&] {
                      step.run([&](const auto& forward) {
                        PolicyScope scope({.memory_budget = budget});
                        forward();
                      });
                    }));
  }
  expect_same_bits(step.state(), plain_step.state(), "state");
  EXPECT_EQ(budget.times_over(), 0);
  EXPECT_LE(peak, plain_peak / 2);
}

}  // namespace
}  // namespace ac2::test
