// The plans of all stages of a mesh, and the time of a step with them.
//
//   const MeshPlan plan = plan_mesh({.model = llama3_405b(), .mesh = {.data = 8, .tensor = 8, .pipeline = 16}});
//   print_mesh_plan(std::cout, plan);
//
// A stage's plan costs what it adds to the step of the whole pipeline. In a stage that waits for a slower one, only
// what is replayed for the last micro-batch adds to the step, and all of it only in the slowest stage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <vector>

#include "examples/mesh/pipeline_schedule.h"
#include "examples/mesh/stage_plan.h"

namespace gpt {

struct MeshPlan {
  MeshPlanOptions options;
  std::vector<StagePlan> stages;
  // By stage: the plan that takes the least time, or one that peaks lower, if the step of the pipeline then takes no
  // more than the share MeshPlanOptions::spare longer, for all stages together.
  std::vector<PlannedStep> chosen;
  PipelineTimes times;  // with these
};

// Throws c10::Error for a model that the mesh cannot share.
MeshPlan plan_mesh(const MeshPlanOptions& options);

// With variant i of StagePlan::steps in all stages.
PipelineTimes times_of_variant(const MeshPlan& plan, size_t i);
// In seconds, with another step in one stage, in place of the chosen one.
double adds_to_step(const MeshPlan& plan, int64_t stage, const PlannedStep& step);

void print_mesh_plan(std::ostream& out, const MeshPlan& plan);

}  // namespace gpt
