// Steps that follow plans, and their peaks: as the summaries say, and as they are.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ac2/plan.h"

namespace ac2::test {

// A step whose loss `forward` computes.
struct PlannedNetwork {
  std::function<at::Tensor()> forward;
  std::vector<at::Tensor> parameters;
};

struct StepPeaks {
  // On top of what was there before the step.
  int64_t said = 0;
  int64_t real = 0;                // of a region around the whole step, as it was recorded
  int64_t with_forward_alone = 0;  // of a region around forward alone
  int64_t replayed_ops = 0;
};

// Of plans of the step: one that keeps everything, and `plans` more, down to the smallest. `peak_of` runs a function
// and returns its peak on top of what was there before.
std::vector<StepPeaks> step_peaks(const PlannedNetwork& network, c10::Device device, int plans,
                                  const std::function<int64_t(const std::function<void()>&)>& peak_of);

// The largest and the smallest of said / real - 1, in percent. Prints both.
struct Deviations {
  double most = 0;
  double least = 0;
};
Deviations deviations(const std::string& name, const std::vector<StepPeaks>& peaks);

}  // namespace ac2::test
