// A recorded training step as the planner sees it: what forward makes, and when backward takes it.
//
//   TracedStep step = traced_step(*read_dtr_trace("densenet121.log"), 1 << 20);
//   Planner planner(step.graph);
//
// A trace does not say where forward ends. It is taken to end where the most bytes are alive whose values ops take
// later. What an op of backward takes of forward is a hook of autograd, and the ops of backward give the time between
// hooks. Gradients do not count, as in the plans of the library.
#pragma once

#include <cstdint>

#include "ac2/internal/planning/step_graph.h"
#include "benchmarks/simulator/step_simulator.h"

namespace ac2::benchmarks {

struct TracedStep {
  internal::StepGraph graph;
  double forward_cost = 0, backward_cost = 0;
};

// Values of at least `copy_min_bytes` may leave.
TracedStep traced_step(const internal::RecordedStep& step, int64_t copy_min_bytes);

}  // namespace ac2::benchmarks
