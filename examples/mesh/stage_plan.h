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
#include "examples/mesh/mesh_plan_options.h"
#include "examples/mesh/pipeline_schedule.h"
#include "examples/mesh/pipeline_step.h"

namespace gpt {

// One way to checkpoint. Nothing is copied from meta tensors, and so the figures of a plan that copies are not those of
// a step that ran: held_bytes and replayed_ops come from its summary, peak_bytes are those for which it was made, and
// the rest is that of no recomputation.
struct PlannedStep {
  std::string name;
  Regions regions;
  StepFigures figures;
  // Of one micro-batch, as the planner computes it.
  ac2::PlanSummary summary;
  StageTimes times;        // as stage_times.h has them
  int64_t host_bytes = 0;  // that the micro-batches in flight have in the host's memory
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
  // Where a node has host memory, the cheapest with copies are among them.
  std::vector<PlannedStep> steps;
  // A plan that takes less time than the last step, but copies more than the device's share of the host's memory holds.
  std::optional<PlannedStep> beyond_host = std::nullopt;

  int64_t state_bytes() const { return parameter_bytes + gradient_bytes + optimizer_bytes; }
};

// Throws c10::Error for a model that the mesh cannot share.
StagePlan plan_stage(const MeshPlanOptions& options, int64_t stage);

// The smallest plan that has been found with a backward of `seconds` or less, if it peaks lower than `than`. `plan` is
// that of plan_stage().
std::optional<PlannedStep> smaller_plan(const MeshPlanOptions& options, const StagePlan& plan, const PlannedStep& than,
                                        double seconds);

}  // namespace gpt
