// For a step that is known: how the evictor should weigh its values to make the step cheapest under a budget, found by
// simulating the step again and again. First the constants of the rule, from a fixed set and then around the best of
// it; then, for the kinds of values with the most bytes, whether to drop all of the kind sooner or later; then single
// stretches of the step (bias_search.h), which takes the most time.
//
//   RuleChoice choice = best_rule(step, budget);
//   StepResult result = simulate(step, choice.options);
#pragma once

#include <cstdint>

#include "benchmarks/simulator/bias_search.h"
#include "benchmarks/simulator/step_simulator.h"

namespace ac2::internal {

// If none completes, that of the default constants.
RuleChoice best_rule(const RecordedStep& step, int64_t budget);

}  // namespace ac2::internal
