// A search for a step that is known: how the evictor should weigh values to make the step cheapest under a budget.
//
//   const RuleChoice choice = best_rule(step, budget);
//   const StepResult result = simulate(step, choice.options);
//
// It simulates the step again and again: with constants of the rule from a fixed set, with constants around the best of
// these, with the cost of all values of one kind raised or lowered (for the kinds with the most bytes), and with that
// of single stretches of the step (bias_search.h), which takes the most time.
#pragma once

#include <cstdint>

#include "benchmarks/simulator/bias_search.h"
#include "benchmarks/simulator/step_simulator.h"

namespace ac2::internal {

// If no simulation completes, the choice with the default constants.
RuleChoice best_rule(const RecordedStep& step, int64_t budget);

}  // namespace ac2::internal
