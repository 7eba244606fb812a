// The order in which a stage takes its micro-batches, "one forward, one backward" (arXiv 2104.04473), and the time that
// all stages together take for a step.
//
//   for (const MicroBatchTurn& turn : turns_of_stage(stages, stage, micro_batches)) …    // what pipeline_step.h does
//   const PipelineTimes times = pipeline_times({{.forward = 1, .backward = 2}, {.forward = 1, .backward = 2}}, 8);
//   times.step;          // (8 + 1) * 3
//   times.waits[0];      // 3
//
// The times follow from what waits for what in pipeline_step.h. A stage receives, computes and sends, one after the
// other. A tensor goes over the wire once both stages are there, and the sender computes meanwhile. A stage that sends
// on waits until the tensor that the stage has sent before in that direction has arrived. Both directions of a wire
// are independent.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <vector>

namespace gpt {

struct MicroBatchTurn {
  bool is_forward = true;
  int64_t micro_batch = 0;

  bool operator==(const MicroBatchTurn&) const = default;
};

// The most micro-batches that wait for their backward in a stage.
int64_t most_in_flight(int64_t stages, int64_t stage, int64_t micro_batches);
std::vector<MicroBatchTurn> turns_of_stage(int64_t stages, int64_t stage, int64_t micro_batches);

// In seconds.
struct StageTimes {
  double forward = 0, backward = 0;  // of a micro-batch, with all that is replayed, and exchanged within the stage
  double to_next = 0;                // what a micro-batch's output takes on the wire
  double to_before = 0;              // the same of the gradient of its input
  double after = 0;                  // from the last backward on: the optimizer

  double busy(int64_t micro_batches) const { return static_cast<double>(micro_batches) * (forward + backward) + after; }
};

struct PipelineTimes {
  double step = 0;  // until all stages have ended
  std::vector<double>
      waits;  // by stage: the part of the step for which it neither computes nor exchanges within itself
};

PipelineTimes pipeline_times(const std::vector<StageTimes>& stages, int64_t micro_batches);

}  // namespace gpt
