// The times of a stage's micro-batches, as far as shapes tell them.
//
//   const StageTimes times = modelled_times(options, stage, run_step(…), planner.summarize(…));
//
// An op takes the time that the planner's costs say, on a device on which products run at MeshPlanOptions::flops, and a
// backward twice that of its forward, and the replays. Collectives go round rings, at the speed of links where each
// group is within a node, and hide behind nothing. A backward waits for the copies to the host's memory and back that
// do not fit beside it. The optimizer takes its collectives' time.
#pragma once

#include "ac2/plan_summary.h"
#include "examples/mesh/mesh_plan_options.h"
#include "examples/mesh/pipeline_schedule.h"
#include "examples/mesh/pipeline_step.h"
#include "examples/mesh/stage.h"

namespace gpt {

// `summary` is of one micro-batch.
StageTimes modelled_times(const MeshPlanOptions& options, const Stage& stage, const StepFigures& figures,
                          const ac2::PlanSummary& summary);

}  // namespace gpt
