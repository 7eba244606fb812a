// The most that the memory of a device comes to in a step that follows a plan, as far as it is known from the recording
// of the step.
//
//   StepPeak peak(graph, readings);
//   const int64_t bytes = peak.of(plan.kept);
//
// While the step was recorded everything was kept. The memory that was allocated at a moment, less the results of ops
// that were alive then, is the rest: parameters, inputs, gradients, the memory of kernels, and all that the planner
// knows nothing of. The rest is the same in a step that follows a plan. To it come the results that the program has at
// that moment, as in the recording, and those that the plan holds or has computed again, as the KeepSimulator finds
// them. A result that is both counts once. What was alive in the recording is found by the same simulator, so that
// where the simulator errs it does so in both, and a plan that replays nothing has the peak of the recording.
//
// Between two looks the highest memory is taken to have come together with the results that were alive at the first.
// An op that runs again has as much working memory as it had in forward.
//
// Exact where the memory is looked at between any two moments at which the program lets go of results or allocates.
// Otherwise too much rather than too little: results that the program lets go of between two looks count up to the
// second.
//
// Cost: that of a run of the KeepSimulator. Lifetime: the graph must outlive it. Threads: not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "ac2/internal/planning/keep.h"
#include "ac2/internal/planning/keep_simulator.h"
#include "ac2/internal/planning/step_graph.h"
#include "ac2/internal/planning/step_readings.h"

namespace ac2::internal {

class StepPeak {
 public:
  StepPeak(const StepGraph& graph, StepReadings readings);
  StepPeak(const StepPeak&) = delete;
  StepPeak& operator=(const StepPeak&) = delete;

  // `kept` is as KeepSimulator::complete() makes it, and copies nothing: when the memory of a copied value is free
  // depends on how fast copies are.
  int64_t of(absl::Span<const Keep> kept);
  int64_t start() const { return readings_.start; }

 private:
  // The memory around a look beside the results of ops.
  struct Rest {
    int64_t highest = kNone;  // at the most since the look before; kNone if nothing was allocated
    int64_t now = 0;
  };
  static constexpr int64_t kNone = -(int64_t{1} << 60);

  class Alive;
  class Recording;
  class Planned;

  const StepGraph& graph_;
  const StepReadings readings_;
  KeepSimulator simulator_;
  std::vector<Rest> rests_;           // by look
  std::vector<uint32_t> first_look_;  // by event: the first look that is followed by it; and one past the last
};

}  // namespace ac2::internal
