// The peak of a whole step that a plan's summary says, compared with that of a step which follows the plan.
#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "ac2/plan.h"
#include "ac2/scope.h"
#include "ac2/testing/counting_allocator.h"
#include "tests/planning/step_peaks.h"
#include "tests/support/peak_networks.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

constexpr int64_t kElements = 1 << 14;
constexpr int64_t kBytes = kElements * 4;

// With one thread, as PeakNetworksTest.
class StepPeakTest : public CleanTest {
 protected:
  StepPeakTest() { at::set_num_threads(1); }
  ~StepPeakTest() override { at::set_num_threads(threads_); }

  // Of fn(), on top of what was held before.
  int64_t peak_of(const std::function<void()>& fn) {
    const int64_t before = counter_.current_bytes();
    counter_.reset_peak();
    fn();
    return counter_.peak_bytes() - before;
  }
  std::vector<StepPeaks> peaks(const std::function<at::Tensor()>& forward, const Tensors& parameters, int plans = 8) {
    return step_peaks({.forward = forward, .parameters = parameters}, at::kCPU, plans,
                      [&](const auto& fn) { return peak_of(fn); });
  }
  static void expect_exact(const std::vector<StepPeaks>& peaks) {
    EXPECT_GT(peaks.back().replayed_ops, 0);
    for (const StepPeaks& peak : peaks) EXPECT_EQ(peak.said, peak.real) << peak.replayed_ops << " replays";
  }

  // No less than it is, and 2 % more at most.
  static void expect_near(const std::vector<StepPeaks>& peaks) {
    const auto [most, least] = deviations("step", peaks);
    EXPECT_LE(most, 2);
    EXPECT_GE(least, 0);
    EXPECT_GT(peaks.back().replayed_ops, 0);
  }

  testing::CountingAllocator& counter_ = testing::CountingAllocator::install();

 private:
  const int threads_ = at::get_num_threads();
};

TEST_F(StepPeakTest, IsExactOnAChain) {
  const at::Tensor x = sample({kElements});
  expect_exact(peaks([&] { return sines(x, 24).sum(); }, {x}));
}

TEST_F(StepPeakTest, IsExactOnAChainOfOpsThatSaveDifferently) {
  const at::Tensor input = sample({8, kElements / 8});
  const auto forward = [&] {
    at::Tensor x = input;
    for (int i = 0; i < 8; ++i) x = x.tanh().add(1).sin().mul(2).softmax(-1);
    return x.sum();
  };
  expect_exact(peaks(forward, {input}));
}

TEST_F(StepPeakTest, IsOffByAGradientOfABiasOnAChainOfProducts) {
  const at::Tensor input = sample({64, 128}), weight = sample({128, 128}), bias = sample({128});
  const auto forward = [&] {
    at::Tensor x = input;
    for (int i = 0; i < 8; ++i) x = at::gelu(at::linear(x, weight, bias));
    return x.sum();
  };
  // A node of autograd makes the gradient after it has let go of what it has taken out, and before it releases that.
  for (const StepPeaks& peak : peaks(forward, {input, weight, bias})) {
    EXPECT_GE(peak.said, peak.real);
    EXPECT_LE(peak.said, peak.real + bias.nbytes());
  }
}

TEST_F(StepPeakTest, CountsResultsThatTheProgramHasOnce) {
  const at::Tensor x = sample({kElements});
  const auto forward = [&] {
    at::Tensor y = x, sum;
    Tensors all;
    for (int i = 0; i < 12; ++i) all.push_back(y = y.sin());
    for (const at::Tensor& one : all) sum = sum.defined() ? sum + one.sum() : one.sum();
    return sum;
  };
  const std::vector<StepPeaks> found = peaks(forward, {x});
  for (const StepPeaks& peak : found) EXPECT_EQ(peak.said, peak.real) << peak.replayed_ops << " replays";
}

TEST_F(StepPeakTest, CountsWhatWritesAndPackedFormsTake) {
  const at::Tensor x = sample({kElements});
  const SaveWithHooks in_half([](const at::Tensor& t) { return at::IValue(t.to(at::kHalf)); },
                              [](const at::IValue& packed) { return packed.toTensor().to(at::kFloat); });
  const auto forward = [&] {
    at::Tensor y = x;
    for (int i = 0; i < 6; ++i) {
      y = y.sin().mul_(2).cos();
      if (i == 2) tag_with_policy(y, in_half);
      if (i == 4) tag_with_policy(y, CheckpointPolicy::MUST_RECOMPUTE);
    }
    return y.sum();
  };
  expect_near(peaks(forward, {x}));
}

TEST_F(StepPeakTest, CountsConstantsThatTheProgramLetsGoOf) {
  const at::Tensor x = sample({kElements});
  const auto forward = [&] {
    at::Tensor y = x;
    for (int i = 0; i < 8; ++i) y = (y.sin() * at::full({kElements}, 1.5)).tanh();
    return y.sum();
  };
  expect_near(peaks(forward, {x}));
}

TEST_F(StepPeakTest, CountsTheWorkingMemoryOfKernelsAndGradientsThatAreThere) {
  const at::Tensor x = sample({4, 16, 64, 64}), weight = sample({16, 16, 3, 3});
  const auto forward = [&] {
    at::Tensor y = x;
    for (int i = 0; i < 4; ++i) y = std::get<0>(at::cumsum(at::conv2d(y, weight, {}, 1, 1).relu(), 0).sort(-1));
    return y.sum();
  };
  expect_near(peaks(forward, {x, weight}));
}

TEST_F(StepPeakTest, CountsWhatWasThereBeforeTheStepIfTheStepTakesIt) {
  const at::Tensor x = sample({kElements}), other = sample({kElements});
  StepPlanner planner([&] { sines(x, 8).sum().backward(); }, {.step_peak_on = at::kCPU});
  const PlanSummary summary = planner.smallest().summary();
  EXPECT_EQ(summary.step_start_bytes, kBytes);
  EXPECT_GE(*summary.step_peak_bytes - kBytes, summary.peak_bytes);
}

TEST_F(StepPeakTest, IsNotKnownWhereNothingWasMeasured) {
  const at::Tensor x = sample({kElements});
  const auto step = [&] { sines(x, 8).sum().backward(); };
  const auto peak = [](const std::function<void()>& step, const PlanOptions& options) {
    return StepPlanner(step, options).smallest().summary().step_peak_bytes;
  };
  EXPECT_EQ(peak(step, {}), std::nullopt);
  EXPECT_EQ(peak([&] { sines(x, 8).sum(); }, {.step_peak_on = at::kCPU}), std::nullopt) << "no backward";
  EXPECT_EQ(peak(step, {.recording_budget = 4 * kBytes, .step_peak_on = at::kCPU}), std::nullopt);
  EXPECT_NE(peak(step, {.recording_budget = 64 * kBytes, .step_peak_on = at::kCPU}), std::nullopt);
}

TEST_F(StepPeakTest, WhereItCouldNotBeMeasuredAskingForItIsAnError) {
  const at::Tensor x = sample({kElements});
  const auto step = [&] { sines(x, 8).sum().backward(); };
  for (const auto& [device, name] : {std::pair(at::kMeta, "meta"), std::pair(at::kXPU, "xpu")}) {
    expect_error([&] { StepPlanner(step, {.step_peak_on = device}); },
                 {"PlanOptions::step_peak_on is ", name, "whose memory ac2 cannot measure"});
  }
  expect_error([&] { plan(step, 8 * kBytes, {.step_peak_on = at::kCPU}); },
               {"PlanOptions::step_peak_on was given to ac2::plan()", "Use StepPlanner(step, options).plan(bytes)"});
}

TEST_F(StepPeakTest, IsFoundAgainAfterAStepThatThrew) {
  const at::Tensor x = sample({kElements});
  EXPECT_THROW(StepPlanner([] { throw std::runtime_error("no step"); }, {.step_peak_on = at::kCPU}),
               std::runtime_error);
  StepPlanner planner([&] { sines(x, 8).sum().backward(); }, {.step_peak_on = at::kCPU});
  EXPECT_TRUE(planner.smallest().summary().step_peak_bytes);
}

TEST_F(StepPeakTest, IsFoundAgainWhileAGraphOfTheStepBeforeLives) {
  const at::Tensor x = sample({kElements});
  at::Tensor kept;
  for (int i = 0; i < 2; ++i) {
    StepPlanner planner(
        [&] {
          kept = sines(x, 8);
          sines(x, 8).sum().backward();
        },
        {.step_peak_on = at::kCPU});
    EXPECT_TRUE(planner.smallest().summary().step_peak_bytes);
  }
}

TEST_F(StepPeakTest, BlocksOfBeforeAndOfAfterTheRecordingAreFreedAsAlways) {
  const at::Tensor x = sample({kElements});
  const int64_t before = counter_.current_bytes();
  {
    c10::Allocator& allocator = *c10::GetAllocator(at::kCPU);
    void* const raw = allocator.raw_allocate(kBytes);
    void* raw_in_step = nullptr;
    at::Tensor kept;
    StepPlanner planner(
        [&] {
          kept = sines(x, 8).detach();
          raw_in_step = c10::GetAllocator(at::kCPU)->raw_allocate(kBytes);
          c10::GetAllocator(at::kCPU)->raw_deallocate(raw);
          sines(x, 8).sum().backward();
        },
        {.step_peak_on = at::kCPU});
    EXPECT_EQ(counter_.current_bytes() - before, 3 * kBytes);
    c10::GetAllocator(at::kCPU)->raw_deallocate(raw_in_step);
    x.mutable_grad().reset();
  }
  EXPECT_EQ(counter_.current_bytes(), before);
}

class StepPeakNetworksTest : public StepPeakTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(StepPeakNetworksTest, IsWithinATenthOfAPercentAndNoLessWhereTheRegionEndsBeforeBackward) {
  const PeakNetwork network = peak_network(GetParam(), at::kCPU);
  const std::vector<StepPeaks> found = peaks([&] { return network.forward().sum(); }, network.module->parameters(), 4);
  const auto [most, least] = deviations(GetParam(), found);
  EXPECT_LE(most, 0.1);
  EXPECT_EQ(least, 0);
  for (const StepPeaks& peak : found) EXPECT_LE(peak.with_forward_alone, peak.said);
}

INSTANTIATE_TEST_SUITE_P(Networks, StepPeakNetworksTest,
                         ::testing::Values("gpt", "resnet18", "lstm", "resnet50", "unet", "moe"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ac2::test
