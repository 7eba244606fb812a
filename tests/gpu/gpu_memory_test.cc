// A GPU whose memory runs out: whatever_fits() asked by CUDA's own allocator, and copies to the host.
#include <ATen/DeviceAccelerator.h>
#include <torch/version.h>

#include <chrono>
#include <functional>
#include <iostream>

#include "ac2/internal/budget/whatever_fits.h"
#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/memory_budget.h"
#include "ac2/scope.h"
#include "examples/device_meter.h"
#include "tests/gpu/device_limit.h"
#include "tests/gpu/gpu.h"
#include "tests/support/training_step.h"
#include "tests/support/wait_for_engine.h"

namespace ac2::test {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int kSteps = 8;

class GpuMemoryTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (!tells_requested_bytes()) GTEST_SKIP() << "this LibTorch does not tell what is requested from an accelerator";
    whatever_fits();
    budget().start_limit_anew();
    device_ = c10::Device(at::kCUDA, at::accelerator::getDeviceIndex());
    const Tensors once = trained(plain, 1);  // cuBLAS takes its workspace
    at::accelerator::synchronizeDevice(device_.index());
    empty_cache();
  }
  void TearDown() override {
    if (!IsSkipped()) {
      budget().start_limit_anew();
      empty_cache();
    }
    GpuTest::TearDown();
  }

  // 12 layers of some 600 MiB each.
  static TrainingStep::Sizes sizes() { return {.layers = 12, .batch = 32768, .dim = 512}; }
  static internal::Budget& budget() { return *internal::whatever_fits_budget(internal::CostSource::kMeasured); }
  static void plain(const std::function<void()>& forward) { forward(); }
  static void in_region(const std::function<void()>& forward) {
    PolicyScope scope({.memory_budget = whatever_fits()});
    forward();
  }

  using Around = std::function<void(const std::function<void()>& forward)>;
  Tensors trained(const Around& around, int steps = kSteps) const {
    TrainingStep step(device_, sizes());
    for (int i = 0; i < steps; ++i) step.run(around);
    return step.state();
  }
  // The bytes of a step beside those that were there before it.
  int64_t peak_of_plain_step() const {
    TrainingStep step(device_, sizes());
    step.run(plain);
    const gpt::DeviceMeter meter(device_);
    meter.synchronize();
    meter.reset_peak();
    step.run(plain);
    return meter.peak_bytes();
  }
  int64_t free_memory() const { return internal::memory_of_accelerator(device_.index())->free; }

  void expect_plain_fails() const {
    EXPECT_THROW(trained(plain, 1), c10::OutOfMemoryError);
    wait_for_engine(at::kCUDA);
    empty_cache();
  }

  // The steps, with what each had to drop in a hurry and how long it took.
  void expect_trains(const Around& around, const Tensors& expected) {
    TrainingStep step(device_, sizes());
    for (int i = 0; i < kSteps; ++i) {
      const int64_t drops = budget().hurried_drops();
      const auto start = std::chrono::steady_clock::now();
      step.run(around);
      at::accelerator::synchronizeDevice(device_.index());
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      std::cout << "step " << i << ": " << budget().hurried_drops() - drops << " shortages, " << 1e3 * took.count()
                << " ms, may hold " << budget().bytes() / kMiB << " MiB" << std::endl;
    }
    const Tensors state = step.state();
    ASSERT_EQ(state.size(), expected.size());
    for (size_t i = 0; i < state.size(); ++i) EXPECT_TRUE(same_bits(state[i], expected[i])) << i;
  }

  c10::Device device_ = c10::kCPU;
};

// As where another program has the rest.
TEST_F(GpuMemoryTest, AStepIsDoneInLessMemoryThanItsPeak) {
  const Tensors expected = trained(plain);
  const int64_t peak = peak_of_plain_step();
  for (const double share : {0.8, 0.5}) {
    SCOPED_TRACE(share);
    budget().start_limit_anew();
    empty_cache();
    const auto room = static_cast<int64_t>(share * static_cast<double>(peak));
    const at::Tensor taken = at::empty({free_memory() - room}, at::TensorOptions(at::kCUDA).dtype(at::kByte));
    std::cout << "plain peak " << peak / kMiB << " MiB, left free " << free_memory() / kMiB << " MiB\n";
    expect_plain_fails();
    expect_trains(in_region, expected);
    EXPECT_GT(budget().bytes(), room / 4);
  }
}

TEST_F(GpuMemoryTest, AStepIsDoneInTheFractionOfTheDeviceThatItMayHave) {
  const Tensors expected = trained(plain);
  const int64_t peak = peak_of_plain_step();
  const int64_t total = internal::memory_of_accelerator(device_.index())->total;
  for (const double share : {0.8, 0.5}) {
    SCOPED_TRACE(share);
    budget().start_limit_anew();
    empty_cache();
    const MemoryFraction fraction(share * static_cast<double>(peak) / static_cast<double>(total));
    expect_plain_fails();
    expect_trains(in_region, expected);
  }
}

#if TORCH_VERSION_MINOR >= 9  // which tells what is reserved
TEST_F(GpuMemoryTest, APeakIsTheMostThatTheAllocatorReserves) {
  const auto most_reserved = [&] { return at::accelerator::getDeviceStats(device_.index()).reserved_bytes[0].peak; };
  const auto reset = [&] {
    empty_cache();
    at::accelerator::resetPeakStats(device_.index());
  };
  reset();
  const Tensors expected = trained(plain);
  const int64_t plain_peak = most_reserved();
  for (const double share : {0.8, 0.5}) {
    SCOPED_TRACE(share);
    reset();
    const auto bound = static_cast<int64_t>(share * static_cast<double>(plain_peak));
    {
      const MemoryBudget peak = MemoryBudget::peak(bound);
      const auto under_peak = [&](const std::function<void()>& forward) {
        PolicyScope scope({.memory_budget = peak});
        forward();
      };
      expect_trains(under_peak, expected);
      std::cout << "plain reserved " << plain_peak / kMiB << " MiB, bound " << bound / kMiB << ", reserved "
                << most_reserved() / kMiB << ", times over " << peak.times_over() << std::endl;
      EXPECT_LE(most_reserved(), bound);
      EXPECT_GE(most_reserved(), bound / 10 * 9);
    }
    wait_for_engine(at::kCUDA);
    expect_trains(plain, expected);  // the limit has gone with the budget
  }
}
#endif

TEST_F(GpuMemoryTest, NothingIsDroppedWhereThereIsRoom) {
  const Tensors expected = trained(plain);
  const int64_t drops = budget().hurried_drops();
  expect_trains(in_region, expected);
  EXPECT_EQ(budget().hurried_drops(), drops);
}

TEST_F(GpuMemoryTest, AShortageThatIsOverIsSoonForgotten) {
  const int64_t peak = peak_of_plain_step();
  empty_cache();
  TrainingStep step(device_, sizes());
  at::Tensor taken = at::empty({free_memory() - peak / 2}, at::TensorOptions(at::kCUDA).dtype(at::kByte));
  for (int i = 0; i < 3; ++i) step.run(in_region);
  EXPECT_LT(budget().bytes(), peak / 2);
  taken = at::Tensor();
  empty_cache();
  for (int i = 0; i < 8; ++i) step.run(in_region);
  EXPECT_GT(budget().bytes(), peak / 4 * 3);
}

// Nothing tells how much such an op is about to take.
TEST_F(GpuMemoryTest, AnOpOutsideOfRegionsFindsRoom) {
  constexpr int64_t kElements = 16 * kMiB;
  const auto chain = [](at::Tensor x) {
    for (int i = 0; i < 40; ++i) x = x.sin();
    return x;
  };
  const at::Tensor x = gpu_sample({kElements});
  const at::Tensor expected = gradient_of(chain(x), x);
  empty_cache();
  const int64_t total = internal::memory_of_accelerator(device_.index())->total;
  const int64_t limit = total - free_memory() + 41 * 4 * kElements;
  const MemoryFraction fraction(static_cast<double>(limit) / static_cast<double>(total));
  at::Tensor y;
  {
    PolicyScope scope({.memory_budget = whatever_fits()});
    y = chain(x);
  }
  const at::Tensor outside = at::ones({limit / 12}, at::TensorOptions(at::kCUDA).dtype(at::kByte));
  EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
}

// Where there is not enough for what must be there, LibTorch's error arrives, and nothing is left behind.
TEST_F(GpuMemoryTest, TooLittleIsTheAllocatorsError) {
  const at::Tensor taken = at::empty({free_memory() - 200 * kMiB}, at::TensorOptions(at::kCUDA).dtype(at::kByte));
  EXPECT_THROW(trained(in_region, 1), c10::OutOfMemoryError);
  wait_for_engine(at::kCUDA);
}

}  // namespace
}  // namespace ac2::test
