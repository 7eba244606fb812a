// The bytes, replays and collectives of each device of a mesh in a step of a large model: planned on meta tensors,
// in one process.
//
//   const MeshPlan plan = plan_mesh({.model = llama3_405b(), .mesh = {.data = 8, .tensor = 8, .pipeline = 16}});
//   print_mesh_plan(std::cout, plan);
//
// The step is that of pipeline_step.h, which runs with as many processes as the mesh has devices too, and does what is
// said here. Devices that differ in data and tensor alone do the same, so there is one plan for each stage.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "ac2/plan.h"
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
  // What a device computes and sends to its tensor group in a second. A plan gathers again where that takes less time
  // than what is replayed without. As given: an H100 that reaches 40 % in bfloat16, and NVLink one way.
  double flops = 400e12;
  double link_bytes = 450e9;
};

// One way to checkpoint.
struct PlannedStep {
  std::string name;
  Regions regions;
  StepFigures figures;
  // Of one micro-batch, as the planner computes it.
  ac2::PlanSummary summary;
};

struct StagePlan {
  int64_t stage = 0;
  int64_t layers = 0;
  int64_t parameters = 0;
  int64_t parameter_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0;
  // No recomputation; save_compute_intensive and recompute_all in each layer. With `sequence` these a second time, in
  // which gathered tensors are gathered again and not saved. At last the plan that takes the least time of those that
  // the device has room for with all its micro-batches in flight, the cheapest without gathering again and the cheapest
  // with it; or else the smallest plan.
  std::vector<PlannedStep> steps;

  int64_t state_bytes() const { return parameter_bytes + gradient_bytes + optimizer_bytes; }
};

struct MeshPlan {
  MeshPlanOptions options;
  std::vector<StagePlan> stages;
};

// Throws c10::Error for a model that the mesh cannot share.
StagePlan plan_stage(const MeshPlanOptions& options, int64_t stage);
MeshPlan plan_mesh(const MeshPlanOptions& options);

void print_mesh_plan(std::ostream& out, const MeshPlan& plan);

}  // namespace gpt
