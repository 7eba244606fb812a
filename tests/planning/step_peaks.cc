#include "tests/planning/step_peaks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "ac2/scope.h"

namespace ac2::test {

std::vector<StepPeaks> step_peaks(const PlannedNetwork& network, c10::Device device, int plans,
                                  const std::function<int64_t(const std::function<void()>&)>& peak_of) {
  const auto forget_gradients = [&] {
    for (at::Tensor parameter : network.parameters) parameter.mutable_grad() = at::Tensor();
  };
  forget_gradients();
  StepPlanner planner(
      [&] {
        const at::Tensor loss = network.forward();
        loss.backward();
      },
      {.modelled_costs = true, .step_peak_on = device});
  const int64_t all = planner.summarize([](const StepPlanner::Op&) { return true; }).peak_bytes;
  const int64_t least = planner.smallest().summary().peak_bytes;
  std::vector<StepPeaks> peaks;
  for (int i = plans; i >= 0; --i) {
    const StepPlanner::Plan plan = planner.plan(least + (all - least) * i / plans);
    EXPECT_TRUE(plan.summary().step_peak_bytes && plan.summary().step_start_bytes);
    StepPeaks& found = peaks.emplace_back();
    found.said = plan.summary().step_peak_bytes.value_or(0) - plan.summary().step_start_bytes.value_or(0);
    found.replayed_ops = plan.summary().replayed_ops;
    forget_gradients();
    found.real = peak_of([&] {
      const PolicyScope scope(plan);
      const at::Tensor loss = network.forward();
      loss.backward();
    });
    forget_gradients();
    found.with_forward_alone = peak_of([&] {
      at::Tensor loss;
      {
        const PolicyScope scope(plan);
        loss = network.forward();
      }
      loss.backward();
    });
  }
  forget_gradients();
  return peaks;
}

Deviations deviations(const std::string& name, const std::vector<StepPeaks>& peaks) {
  Deviations found;
  for (const StepPeaks& peak : peaks) {
    const double percent = 100.0 * static_cast<double>(peak.said - peak.real) / static_cast<double>(peak.real);
    found.most = std::max(found.most, percent);
    found.least = std::min(found.least, percent);
    std::cout << name << ": " << peak.replayed_ops << " replays, said " << peak.said << ", real " << peak.real << " ("
              << percent << " %), with a region around forward alone " << peak.with_forward_alone << "\n";
  }
  return found;
}

}  // namespace ac2::test
