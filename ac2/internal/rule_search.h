// For a step that is known: the constants of the eviction rule that make it cheapest under a budget, found by
// simulating the step with each of a fixed set. The evictor then runs the step with those.
//
//   RuleChoice choice = best_rule(step, budget);
//   StepResult result = simulate(step, choice.options);
#pragma once

#include <cstdint>

#include "ac2/internal/step_simulator.h"

namespace ac2::internal {

struct RuleChoice {
  SimulatorOptions options;
  StepResult result;  // that of simulate(step, options)
};

// If none completes, that of the default constants.
RuleChoice best_rule(const RecordedStep& step, int64_t budget);

}  // namespace ac2::internal
