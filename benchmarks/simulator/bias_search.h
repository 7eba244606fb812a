// A search for a step that is known: hill climbing over the factors by which the cost of dropping each single value is
// multiplied (SimulatorOptions::bias).
//
//   RuleChoice better = search_biases(step, choice);
//
// The rule weighs a value by what is around it at one moment. That this product is the slow one of its kind, or that a
// stretch falls badly between two others, shows only in the whole step. So the search raises the factors of one stretch
// of ops and lowers those of another, simulates the step, and keeps the change if the step has become cheaper.
//
// Guaranteed: the same step and choice give the same result on every machine. Random numbers come from a generator that
// the C++ standard defines, and the length of the search is counted in simulated ops, not in seconds.
#pragma once

#include "benchmarks/simulator/step_simulator.h"

namespace ac2::internal {

struct RuleChoice {
  SimulatorOptions options;
  StepResult result;  // that of simulate(step, options)
};

// Simulates the step with `options`, and gives up when it becomes dearer than with `best`. If it does not, `options`
// become the best. Returns the result of the simulation.
StepResult attempt(const RecordedStep& step, SimulatorOptions options, RuleChoice& best);

// Returns `choice` itself if it does not complete, if nothing is replayed, or if nothing cheaper is found.
RuleChoice search_biases(const RecordedStep& step, RuleChoice choice);

}  // namespace ac2::internal
