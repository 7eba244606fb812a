// The peak of a whole step that a plan's summary says, on an accelerator whose allocator tells statistics.
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ac2/plan.h"
#include "tests/planning/step_peaks.h"
#include "tests/support/offload_fixture.h"
#include "tests/support/peak_networks.h"

namespace ac2::test {
namespace {

// Before a fixture installs it without.
[[maybe_unused]] const FakeAccelerator& installed_with_statistics =
    FakeAccelerator::install(/*tells_statistics=*/FakeAccelerator::can_tell_statistics());

constexpr int64_t kElements = 1 << 14;
constexpr int64_t kBytes = kElements * 4;

class StepPeakDeviceTest : public OffloadTest {
 protected:
  void SetUp() override {
    OffloadTest::SetUp();
    if (!FakeAccelerator::can_tell_statistics()) GTEST_SKIP() << "LibTorch has no DeviceAllocator before 2.9";
  }
  // Of fn(), on top of what was held before.
  int64_t peak_of(const std::function<void()>& fn) {
    const int64_t before = device_bytes();
    fake_.reset_peaks();
    fn();
    return fake_.peak_device_bytes() - before;
  }
  std::vector<StepPeaks> peaks(const std::function<at::Tensor()>& forward, const Tensors& parameters, int plans = 8) {
    return step_peaks({.forward = forward, .parameters = parameters}, fake_.device(), plans,
                      [&](const auto& fn) { return peak_of(fn); });
  }
  at::Tensor on_device(at::IntArrayRef sizes) { return sample(sizes).detach().to(fake_.device()).requires_grad_(); }
};

TEST_F(StepPeakDeviceTest, IsExactOnAChain) {
  const at::Tensor x = on_device({kElements});
  const std::vector<StepPeaks> found = peaks([&] { return sines(x, 24).sum(); }, {x});
  EXPECT_GT(found.back().replayed_ops, 0);
  for (const StepPeaks& peak : found) EXPECT_EQ(peak.said, peak.real) << peak.replayed_ops << " replays";
}

TEST_F(StepPeakDeviceTest, SaysHowMuchWasThereBeforeTheStep) {
  const at::Tensor x = on_device({kElements}), other = on_device({kElements});
  const int64_t before = device_bytes();
  StepPlanner planner([&] { sines(x, 8).sum().backward(); }, {.modelled_costs = true, .step_peak_on = fake_.device()});
  EXPECT_EQ(planner.smallest().summary().step_start_bytes, before);
}

TEST_F(StepPeakDeviceTest, IsNotKnownOfPlansThatCopy) {
  const at::Tensor x = on_device({kElements});
  StepPlanner planner([&] { sines(x, 24).sum().backward(); }, {.modelled_costs = true,
                                                               .forms = {forms::host_memory({.min_bytes = 1})},
                                                               .copy_bytes_per_forward = 24.0 * kBytes,
                                                               .step_peak_on = fake_.device()});
  const PlanSummary copies = planner.plan(12 * kBytes).summary(), keeps = planner.plan(64 * kBytes).summary();
  EXPECT_FALSE(copies.uses.empty());
  EXPECT_EQ(copies.step_peak_bytes, std::nullopt);
  EXPECT_TRUE(keeps.uses.empty());
  EXPECT_NE(keeps.step_peak_bytes, std::nullopt);
}

class StepPeakDeviceNetworksTest : public StepPeakDeviceTest, public ::testing::WithParamInterface<const char*> {};

// As on the CPU (step_peak_test). The kernels run on the CPU, and their own memory is the CPU's.
TEST_P(StepPeakDeviceNetworksTest, IsWithinATenthOfAPercentAndNoLessWhereTheRegionEndsBeforeBackward) {
  const PeakNetwork network = peak_network(GetParam(), fake_.device());
  const std::vector<StepPeaks> found = peaks([&] { return network.forward().sum(); }, network.module->parameters(), 2);
  const auto [most, least] = deviations(GetParam(), found);
  EXPECT_LE(most, 0.1);
  EXPECT_EQ(least, 0);
  for (const StepPeaks& peak : found) EXPECT_LE(peak.with_forward_alone, peak.said);
}

INSTANTIATE_TEST_SUITE_P(Networks, StepPeakDeviceNetworksTest, ::testing::Values("gpt", "resnet18", "lstm"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ac2::test
