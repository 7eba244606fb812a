// One training step of a stage: all micro-batches forward and backward, in the order of
// pipeline_schedule.h, then the optimizer. What it holds, replays and exchanges is counted.
//
//   const Regions regions{.by_layer = "recompute_all"};
//   const StepFigures figures = run_step(stage, optimizer, {.micro_batches = 8, .regions = regions});
//
// It runs for real where the stage is on the CPU, and every process of the mesh must run it then. On meta tensors it
// runs the same ops without data, and without the other processes.
//
// Bytes are counted by ac2::testing::CountingAllocator and by MetaMemory, which must have been installed before the
// stage was made.
//
// Threads: one.
#pragma once

#include <cstdint>

#include "examples/mesh/mesh_optimizer.h"
#include "examples/mesh/regions.h"
#include "examples/mesh/stage.h"
#include "examples/mesh/traffic.h"

namespace gpt {

struct StepOptions {
  int64_t micro_batches = 1;
  int64_t batch = 1;  // sequences in a micro-batch
  Regions regions = {};
};

struct StepFigures {
  int64_t in_flight = 0;  // the most micro-batches that wait for their backward
  // When they first do: the bytes of all tensors beyond those before the step, and what their regions hold, which
  // counts the parameters that ops need too.
  int64_t held_bytes = 0;
  int64_t saved_bytes = 0;
  // The most bytes of tensors beyond those before the step, until the last backward ends, and in the optimizer.
  int64_t peak_bytes = 0;
  int64_t optimizer_peak_bytes = 0;
  int64_t replayed_ops = 0;
  int64_t evicted_values = 0;
  Traffic tensor, context, pipeline, replicas;
  // Of these: in the forwards of all micro-batches, and in the optimizer. The others are in these parts alone.
  Traffic tensor_in_forward, tensor_in_optimizer, context_in_forward;
  double loss = 0;  // the mean over the micro-batches, in the last stage on the CPU
};

// Throws c10::Error unless there are one or more micro-batches and sequences.
StepFigures run_step(Stage& stage, MeshOptimizer& optimizer, const StepOptions& options);

}  // namespace gpt
