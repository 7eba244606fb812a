// A recorded training step as the planner sees it: what forward makes, and when backward takes it.
//
//   TracedStep step = traced_step(*read_dtr_trace("densenet121.log"));
//   Planner planner(step.graph);
//
// A trace does not say where forward ends. It is taken to end where the most bytes are alive whose values ops take
// later. What an op of backward takes of forward is a hook of autograd, and the ops of backward give the time between
// hooks. Gradients do not count, as in the plans of the library.
#pragma once

#include "ac2/internal/planning/step_graph.h"
#include "benchmarks/simulator/step_simulator.h"

namespace ac2::benchmarks {

struct TracedStep {
  internal::StepGraph graph;
  double forward_cost = 0, backward_cost = 0;
};

TracedStep traced_step(const internal::RecordedStep& step);

}  // namespace ac2::benchmarks
