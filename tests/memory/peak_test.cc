// A bound on the peak: what regions hold, what the program holds itself, gradients and the kernels' own memory
// together.
#include <c10/core/CPUAllocator.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ac2/internal/allocator/counted_memory.h"
#include "ac2/memory_budget.h"
#include "ac2/scope.h"
#include "ac2/testing/counting_allocator.h"
#include "benchmarks/networks/networks.h"
#include "tests/support/regions.h"
#include "tests/support/training_step.h"
#include "tests/support/warnings.h"

namespace ac2::test {
namespace {

constexpr int64_t kElements = 1024;
constexpr int64_t kBytes = kElements * 4;

// The bytes before a test, on top of which it bounds what is allocated, are all counted: the first budget is made
// before anything is allocated.
class PeakTest : public CleanTest {
 protected:
  PeakTest() : counter_(testing::CountingAllocator::install()) {
    static const MemoryBudget first = MemoryBudget::peak(int64_t{1} << 60);
    CleanTest::SetUp();
  }
  static int64_t counted() { return internal::CountedMemory::get().bytes(); }
  // With modelled costs, so that the same is dropped in every run.
  static MemoryBudget on_top(int64_t bytes) { return MemoryBudget::peak(counted() + bytes, /*modelled_costs=*/true); }

  // Of fn(), on top of what was held before.
  int64_t peak_of(const std::function<void()>& fn) {
    const int64_t before = counter_.current_bytes();
    counter_.reset_peak();
    fn();
    return counter_.peak_bytes() - before;
  }

  testing::CountingAllocator& counter_;
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

// The bound leaves so much of what a plain step peaks at beside its gradients. One region lies around the whole model.
struct NetworkAndShare {
  const char* name;
  int64_t percent;
};
class PeakOfNetworkTest : public PeakTest, public ::testing::WithParamInterface<NetworkAndShare> {};

TEST_P(PeakOfNetworkTest, StaysWithinTheBound) {
  const auto network = peers::make_network(GetParam().name, peers::Size::kFull);
  const at::Tensor input = network->input();
  const auto take_gradients = [&] {
    Tensors gradients;
    for (at::Tensor parameter : network->parameters()) {
      gradients.push_back(parameter.grad());
      parameter.mutable_grad() = at::Tensor();
    }
    return gradients;
  };
  const int64_t plain_peak = peak_of([&] { network->forward(input, peers::run_plain).sum().backward(); });
  const Tensors expected = take_gradients();
  int64_t of_gradients = 0;
  for (const at::Tensor& gradient : expected) of_gradients += storage_bytes(gradient);
  const int64_t bytes = of_gradients + (plain_peak - of_gradients) * GetParam().percent / 100;
  const MemoryBudget budget = on_top(bytes);
  const int64_t peak = peak_of([&] {
    at::Tensor loss;
    {
      PolicyScope scope({.memory_budget = budget});
      loss = network->forward(input, peers::run_plain).sum();
    }
    loss.backward();
  });
  expect_same_bits(take_gradients(), expected, "gradient");
  std::cout << GetParam().name << ": gradients " << of_gradients << ", plain " << plain_peak << ", bound " << bytes
            << ", peak " << peak << ", " << budget.times_over() << " times over\n";
  EXPECT_LE(peak, bytes);
  EXPECT_GE(peak, bytes / 100 * 90);
  EXPECT_EQ(budget.times_over(), 0);
}

// ResNet's last gradients are computed with two thirds of it, where nothing is left to drop.
INSTANTIATE_TEST_SUITE_P(Networks, PeakOfNetworkTest,
                         ::testing::Values(NetworkAndShare{"gpt", 60}, NetworkAndShare{"resnet18", 75},
                                           NetworkAndShare{"lstm", 60}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ac2::test
