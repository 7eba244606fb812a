// The bytes, replays, collectives and times of a device of one stage in a step of a large model: planned on meta
// tensors, in one process.
//
//   const StagePlan plan = plan_stage({.model = llama3_405b(), .mesh = {.data = 8, .tensor = 8, .pipeline = 16}}, 3);
//
// The step is that of pipeline_step.h, which runs with as many processes as the mesh has devices too, and does what is
// said here. Devices that differ in data, context and tensor alone do the same, so there is one plan for each stage.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ac2/plan.h"
#include "examples/mesh/pipeline_schedule.h"
#include "examples/mesh/pipeline_step.h"

namespace gpt {

struct MeshPlanOptions {
  LargeModel model = gpt3_175b();
  DeviceMesh mesh = {};
  int64_t micro_batches = 1;
  int64_t batch = 1;  // sequences in a micro-batch
  bool sequence = false;
  bool sharded_optimizer = true;
  int64_t device_bytes = int64_t{80} << 30;
  // What a device computes in a second, and what it sends within its node and to other nodes. As given: an H100 that
  // reaches 40 % in bfloat16, NVLink one way, and an adapter of 400 Gb/s for each device.
  double flops = 400e12;
  double link_bytes = 450e9;
  double network_bytes = 50e9;
  int64_t devices_per_node = 8;
  // The share of a step's time that smaller plans may add to it (plan_mesh.h).
  double spare = 0;
};

// One way to checkpoint.
struct PlannedStep {
  std::string name;
  Regions regions;
  StepFigures figures;
  // Of one micro-batch, as the planner computes it.
  ac2::PlanSummary summary;
  // An op takes the time that the planner's costs say, on a device on which products run at `flops`, and a backward
  // twice that of its forward, and the replays. Collectives go round rings and hide behind nothing. The optimizer takes
  // its collectives' time.
  StageTimes times;
};

struct StagePlan {
  int64_t stage = 0;
  int64_t layers = 0;
  int64_t parameters = 0;
  int64_t parameter_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0;
  // No recomputation; save_compute_intensive and recompute_all in each layer. With `sequence`, or a context axis, these
  // a second time, in which gathered tensors are gathered again and not saved. At last the plan that takes the least
  // time of those that the device has room for with all its micro-batches in flight, the cheapest without gathering
  // again and the cheapest with it; or else the smallest plan.
  std::vector<PlannedStep> steps;

  int64_t state_bytes() const { return parameter_bytes + gradient_bytes + optimizer_bytes; }
};

// Throws c10::Error for a model that the mesh cannot share.
StagePlan plan_stage(const MeshPlanOptions& options, int64_t stage);

// The smallest plan that has been found with a backward of `seconds` or less, if it peaks lower than `than`. `plan` is
// that of plan_stage().
std::optional<PlannedStep> smaller_plan(const MeshPlanOptions& options, const StagePlan& plan, const PlannedStep& than,
                                        double seconds);

}  // namespace gpt
