// A budget without a number on an accelerator, whose allocator asks as CUDA's does: with its lock held.
#include <torch/torch.h>

#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "ac2/internal/allocator/shortage.h"
#include "ac2/internal/budget/whatever_fits.h"
#include "ac2/internal/eviction/step_store.h"
#include "ac2/memory_budget.h"
#include "ac2/scope.h"
#include "tests/support/offload_fixture.h"
#include "tests/support/training_step.h"
#include "tests/support/warnings.h"

namespace ac2::test {
namespace {

constexpr int64_t kNone = internal::LearnedLimit::kNone;

class WhateverFitsDeviceTest : public OffloadTest {
 protected:
  void SetUp() override {
    OffloadTest::SetUp();
    whatever_fits();
    budget().start_limit_anew();
    internal::StepStore::process().forget_all();
    fake_.set_free_memory([this](int64_t bytes) { return internal::relieve_shortage(fake_.device(), bytes) > 0; });
  }
  void TearDown() override {
    fake_.set_free_memory(nullptr);
    OffloadTest::TearDown();
  }

  // Ops of devices with streams are not timed, so that the same is dropped in every run.
  static internal::Budget& budget() { return *internal::whatever_fits_budget(internal::CostSource::kMeasured); }
  static void in_region(const std::function<void()>& forward) {
    PolicyScope scope({.memory_budget = whatever_fits()});
    forward();
  }
  static void plain(const std::function<void()>& forward) { forward(); }

  std::vector<at::Tensor> state_of_plain_step(int steps, TrainingStep::Sizes sizes = {}) {
    TrainingStep step(fake_.device(), sizes);
    for (int i = 0; i < steps; ++i) step.run(plain);
    return step.state();
  }
};

TEST_F(WhateverFitsDeviceTest, EachAllocationOfAStepMayBeTheLastThatTakesMore) {
  const Tensors expected = state_of_plain_step(1);
  int done = 0, dropped = 0, errors = 0;
  int64_t allocations = 0;
  {
    TrainingStep step(fake_.device());
    const int64_t before = fake_.device_allocations();
    step.run(in_region);
    allocations = fake_.device_allocations() - before;
  }
  for (int64_t n = 0; n < allocations; ++n) {
    budget().start_limit_anew();
    {
      TrainingStep step(fake_.device());
      std::string error;
      const int64_t drops = budget().hurried_drops();
      fake_.last_allocation_after(n);
      try {
        step.run(in_region);
      } catch (const c10::Error& thrown) {
        error = thrown.what_without_backtrace();
      }
      fake_.last_allocation_after(-1);
      if (error.empty()) {
        expect_same_bits(step.state(), expected, "state");
        ++done;
        dropped += budget().hurried_drops() > drops ? 1 : 0;
      } else {
        EXPECT_NE(error.find("out of memory"), std::string::npos) << error;
        ++errors;
      }
    }
    wait_for_engine(fake_.device());
    EXPECT_EQ(fake_.take_errors(), std::vector<std::string>());
    expect_nothing_left();
    EXPECT_EQ(device_bytes(), 0);
  }
  std::cout << done << " of " << allocations << " steps done, of them " << dropped << " with something dropped, "
            << errors << " without enough memory\n";
  EXPECT_GT(dropped, 10);
}

TEST_F(WhateverFitsDeviceTest, AStepIsDoneInHalfOfItsMemoryAndTheNextOnesDropInTime) {
  const TrainingStep::Sizes deep = {.layers = 6};
  const Tensors expected = state_of_plain_step(6, deep);
  TrainingStep step(fake_.device(), deep);
  step.run(in_region);
  fake_.reset_peaks();
  const int64_t before = device_bytes();
  step.run(in_region);
  const int64_t peak = fake_.peak_device_bytes() - before;
  EXPECT_EQ(budget().bytes(), kNone);
  fake_.limit_device(before + peak / 2);
  std::vector<int64_t> refused;
  for (int i = 2; i < 6; ++i) {
    const int64_t so_far = fake_.refused_allocations();
    step.run(in_region);
    refused.push_back(fake_.refused_allocations() - so_far);
  }
  fake_.last_allocation_after(-1);
  expect_same_bits(step.state(), expected, "state");
  EXPECT_GT(refused[0], 0);
  EXPECT_LT(refused[1], refused[0]);
  EXPECT_EQ(refused[3], 0);
  std::cout << "refused " << refused[0] << ' ' << refused[1] << ' ' << refused[2] << ' ' << refused[3] << '\n';
}

// The shortage of a device is not met by what lies on another, and says nothing of how much may be held of both.
TEST_F(WhateverFitsDeviceTest, ADeviceIsRelievedOfItsOwnValues) {
  const at::Tensor on_cpu = sample({kNumbers}), on_device = leaf(sample({kNumbers}));
  at::Tensor y, z;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope({.memory_budget = whatever_fits()});
    trace = scope.trace();
    y = sines(on_cpu, 20);
    z = sines(on_device, 20);
  }
  const c10::Device beside(fake_.device().type(), 1);
  EXPECT_EQ(internal::relieve_shortage(beside, 5 * kBytes), 0) << "nothing lies there";
  EXPECT_EQ(trace->stats().evicted_values, 0);
  EXPECT_EQ(internal::relieve_shortage(fake_.device(), 5 * kBytes), 5 * kBytes);
  EXPECT_EQ(trace->stats().evicted_values, 5);
  EXPECT_EQ(internal::relieve_shortage(fake_.device(), 1000 * kBytes), 14 * kBytes);
  EXPECT_EQ(internal::relieve_shortage(c10::kCPU, 2 * kBytes), 2 * kBytes);
  EXPECT_EQ(trace->stats().evicted_values, 21);
  EXPECT_TRUE(same_bits(gradient_of_sum(y, on_cpu), gradient_of_sum(sines(on_cpu, 20), on_cpu)));
  EXPECT_TRUE(same_bits(gradient_of_sum(z, on_device).cpu(), gradient_of_sum(sines(on_device, 20), on_device).cpu()));
}

TEST_F(WhateverFitsDeviceTest, APeakThatDoesNotBoundTheDeviceSaysSoOnce) {
  const MemoryBudget peak = MemoryBudget::peak(int64_t{1} << 40);
  const auto in_peak = [&](const std::function<void()>& forward) {
    PolicyScope scope({.memory_budget = peak});
    forward();
  };
  TrainingStep on_cpu(c10::Device(c10::DeviceType::CPU));
  EXPECT_EQ(warnings_of([&] { on_cpu.run(in_peak); }), std::vector<std::string>());
  TrainingStep step(fake_.device());
  const std::vector<std::string> said = warnings_of([&] {
    for (int i = 0; i < 3; ++i) step.run(in_peak);
  });
  ASSERT_EQ(said.size(), 1);
  EXPECT_NE(said[0].find("does not bound the memory of fake:0, on which a region under it computes"), std::string::npos)
      << said[0];
}

TEST_F(WhateverFitsDeviceTest, WithoutAHookInTheAllocatorOpsAndReplaysAreTriedAgain) {
  fake_.set_free_memory(nullptr);
  const at::Tensor x = leaf(sample({kNumbers}));
  const at::Tensor expected = gradient_of_sum(sines(x, 40), x).cpu();
  at::Tensor y;
  const int64_t before = device_bytes();
  in_region([&] {
    fake_.limit_device(before + 20 * kBytes);
    y = sines(x, 40);
  });
  EXPECT_GT(fake_.refused_allocations(), 0);
  fake_.limit_device(before + 24 * kBytes);
  const at::Tensor gradient = gradient_of_sum(y, x).cpu();
  fake_.last_allocation_after(-1);
  EXPECT_TRUE(same_bits(gradient, expected));
}

}  // namespace
}  // namespace ac2::test
