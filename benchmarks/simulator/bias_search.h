// For a step that is known: hill climbing over what dropping each single value is taken to cost
// (SimulatorOptions::bias). The rule weighs a value by what is around it at the moment; that this product is the slow
// one of its kind, or that a stretch falls badly between two others, only shows in the whole step. So a stretch of ops
// is held on to longer and another is dropped sooner, the step is simulated, and what makes it cheaper stays.
//
// The same step and choice give the same result everywhere: the draws come from a generator that the standard defines,
// and how long it searches is counted in simulated ops, not in seconds.
#pragma once

#include "benchmarks/simulator/step_simulator.h"

namespace ac2::internal {

struct RuleChoice {
  SimulatorOptions options;
  StepResult result;  // that of simulate(step, options)
};

// Simulates the step with other options for as long as they are cheaper than `best`, and makes them the best if they
// are to the end. Returns what came of them.
StepResult attempt(const RecordedStep& step, SimulatorOptions options, RuleChoice& best);

// `choice` itself if it does not complete, if nothing is replayed, or if nothing cheaper is found.
RuleChoice search_biases(const RecordedStep& step, RuleChoice choice);

}  // namespace ac2::internal
