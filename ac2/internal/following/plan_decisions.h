// The decisions of a plan: a policy's decision for each op of the step, by what the plan keeps.
//
//   PlannedStep step;
//   step.calls = …;
//   set_decisions(plan, {graph, indices, decided_within, simulator.final_ops(plan.keep.kept), forms}, step);
//
// Threads: any.
#pragma once

#include <cstdint>
#include <vector>

#include "ac2/form.h"
#include "ac2/internal/following/planned_step.h"
#include "ac2/internal/planning/form_planner.h"
#include "ac2/internal/planning/step_graph.h"

namespace ac2::internal {

// The step that was planned, as it was recorded.
struct PlannedOps {
  const StepGraph& graph;
  const std::vector<int64_t>& indices;      // by op of the graph: OpContext::index()
  const std::vector<bool>& decided_within;  // the same: by a MUST of a scope inside, which no other may contradict
  const std::vector<uint8_t>& are_final;    // the same, or empty; see final_ops.h
  const Forms& forms;                       // that the plan may have used
};

// Sets the decisions of `step`, whose calls are known. Where the plan holds results in forms, sets those, and how
// values are copied; `step` is inexact if one of these forms is.
void set_decisions(const FormPlan& plan, const PlannedOps& ops, PlannedStep& step);

}  // namespace ac2::internal
