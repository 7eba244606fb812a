// Memory that runs out, and a bound on the peak, on an accelerator that PyTorch does not have itself: where its
// allocator tells statistics, ac2 stands in front of it, and every allocation passes there, whoever makes it.
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "ac2/internal/budget/whatever_fits.h"
#include "ac2/internal/eviction/step_store.h"
#include "ac2/memory_budget.h"
#include "ac2/report.h"
#include "ac2/scope.h"
#include "tests/support/offload_fixture.h"
#include "tests/support/peak_networks.h"
#include "tests/support/training_step.h"
#include "tests/support/warnings.h"

namespace ac2::test {
namespace {

// Before a fixture installs it without.
[[maybe_unused]] const FakeAccelerator& installed_with_statistics =
    FakeAccelerator::install(/*tells_statistics=*/FakeAccelerator::can_tell_statistics());

// The fake accelerator adds up bytes, and the front rounds them to blocks.
constexpr int64_t kRounding = 512;

class AcceleratorPeakTest : public OffloadTest {
 protected:
  void SetUp() override {
    OffloadTest::SetUp();
    if (!FakeAccelerator::can_tell_statistics()) GTEST_SKIP() << "LibTorch has no DeviceAllocator before 2.9";
    whatever_fits();
    internal::whatever_fits_budget(internal::CostSource::kMeasured)->start_limit_anew();
    internal::StepStore::process().forget_all();
  }
  // Ops of devices with streams are not timed, so that the same is dropped in every run.
  static void in_region(const MemoryBudget& budget, const std::function<void()>& forward) {
    const PolicyScope scope({.memory_budget = budget});
    forward();
  }
  static void plain(const std::function<void()>& forward) { forward(); }
  // Of fn(), on top of what was held before.
  int64_t peak_of(const std::function<void()>& fn) {
    const int64_t before = device_bytes();
    fake_.reset_peaks();
    fn();
    return fake_.peak_device_bytes() - before;
  }
};

TEST_F(AcceleratorPeakTest, MemoryThatRunsOutInBackwardOrTheOptimizerIsMetWithoutAHookInTheAllocator) {
  TrainingStep plain_step(fake_.device());
  plain_step.run(plain);
  const Tensors expected = plain_step.state();
  int64_t allocations = 0;
  {
    TrainingStep step(fake_.device());
    const int64_t before = fake_.device_allocations();
    step.run([&](const auto& forward) { in_region(whatever_fits(), forward); });
    allocations = fake_.device_allocations() - before;
  }
  int done = 0, dropped = 0;
  internal::Budget& budget = *internal::whatever_fits_budget(internal::CostSource::kMeasured);
  for (int64_t n = 0; n < allocations; ++n) {
    budget.start_limit_anew();
    TrainingStep step(fake_.device());
    const int64_t drops = budget.hurried_drops();
    fake_.last_allocation_after(n);
    try {
      step.run([&](const auto& forward) { in_region(whatever_fits(), forward); });
      fake_.last_allocation_after(-1);
      expect_same_bits(step.state(), expected, "state");
      ++done;
      dropped += budget.hurried_drops() > drops ? 1 : 0;
    } catch (const c10::OutOfMemoryError& error) {
      fake_.last_allocation_after(-1);
      EXPECT_NE(std::string(error.what()).find("have dropped all that they could"), std::string::npos) << error.what();
    }
    wait_for_engine(fake_.device());
  }
  std::cout << done << " of " << allocations << " steps done, of them " << dropped << " with something dropped\n";
  EXPECT_GT(dropped, 10);
}

TEST_F(AcceleratorPeakTest, AWholeStepWithItsOptimizerStaysWithinIt) {
  constexpr int kSteps = 5;
  TrainingStep plain_step(fake_.device()), step(fake_.device());
  int64_t plain_peak = 0;
  for (int i = 0; i < kSteps; ++i) plain_peak = peak_of([&] { plain_step.run(plain); });
  step.run(plain);
  const MemoryBudget budget = MemoryBudget::peak(device_bytes() + plain_peak / 2);
  const Warnings warnings;
  int64_t peak = 0;
  for (int i = 1; i < kSteps; ++i) {
    peak = std::max(peak, peak_of([&] { step.run([&](const auto& forward) { in_region(budget, forward); }); }));
  }
  expect_same_bits(step.state(), plain_step.state(), "state");
  EXPECT_EQ(warnings.messages, std::vector<std::string>());
  EXPECT_EQ(budget.times_over(), 0);
  EXPECT_LE(peak, plain_peak / 2);
}

TEST_F(AcceleratorPeakTest, WhereNothingCanBeDroppedMoreIsAllocatedAndWarnedOfOnce) {
  const MemoryBudget budget = MemoryBudget::peak(device_bytes() + 8192);
  const Warnings warnings;
  const at::Tensor x = at::zeros({1024}, fake_.device()), y = at::zeros({1024}, fake_.device());
  EXPECT_EQ(budget.times_over(), 0);
  const at::Tensor z = at::zeros({1024}, fake_.device());
  EXPECT_EQ(budget.times_over(), 1);
  EXPECT_EQ(budget.most_bytes_over(), 4096);
  ASSERT_EQ(warnings.messages.size(), 1);
  EXPECT_NE(warnings.messages[0].find("on fake:0 is exceeded, by 4096 bytes"), std::string::npos)
      << warnings.messages[0];
}

TEST_F(AcceleratorPeakTest, TheAllocatorBehindTheFrontIsAskedForAllElse) {
  const MemoryBudget budget = MemoryBudget::peak(int64_t{1} << 40);
#if __has_include(<ATen/DeviceAccelerator.h>) && TORCH_VERSION_MINOR >= 9
  const at::Tensor x = at::zeros({1000}, fake_.device());
  const auto stats = at::accelerator::getDeviceStats(0);
  EXPECT_EQ(stats.allocated_bytes[0].current, fake_.device_bytes());
  at::accelerator::emptyCache();
  at::accelerator::resetPeakStats(0);
#endif
}

// The page and explain() show the accelerator's bytes against the bound, not the few that the CPU has.
TEST_F(AcceleratorPeakTest, ATimelineHasTheBytesOfTheAccelerator) {
  ASSERT_EQ(device_bytes(), 0);
  const MemoryBudget budget = MemoryBudget::peak(int64_t{1} << 40);
  const at::Tensor x = leaf(sample({1 << 20}));
  std::shared_ptr<const Trace> trace;
  at::Tensor y;
  {
    PolicyScope scope({.memory_budget = budget, .timeline = true});
    trace = scope.trace();
    y = sines(x, 8);
  }
  ASSERT_EQ(device_bytes(), 9 << 22) << "x and eight results";
  // The last event of the region is that the eighth sine saves its argument, before its result is there.
  const std::string said = explain(*trace);
  EXPECT_NE(said.find("At most 32.00 MiB were allocated"), std::string::npos) << said;
}

class AcceleratorPeakNetworksTest : public AcceleratorPeakTest,
                                    public ::testing::WithParamInterface<NetworkAndShare> {};

// As on the CPU (peak_networks_test). The kernels run on the CPU, and their own memory is the CPU's.
TEST_P(AcceleratorPeakNetworksTest, APeakIsWithinTwoPercentBelowTheBound) {
  expect_peak_near_bound(GetParam(), fake_.device(),
                         {.allocated = [&] { return device_bytes(); },
                          .peak_of = [&](const auto& fn) { return peak_of(fn); },
                          .rounding = kRounding});
}

INSTANTIATE_TEST_SUITE_P(Networks, AcceleratorPeakNetworksTest, ::testing::ValuesIn(kPeakNetworks),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ac2::test
