#include "ac2/internal/rule_search.h"

#include <algorithm>

namespace ac2::internal {

RuleChoice best_rule(const RecordedStep& step, int64_t budget) {
  RuleChoice best;
  best.options = {.budget = budget, .step_known = true};
  best.result = simulate(step, best.options);
  const double step_cost = step.cost();

  const auto attempt = [&](SimulatorOptions options) {
    const bool completed = best.result.outcome == StepResult::kCompleted;
    // What is dearer than the best so far need not be finished.
    options.give_up_at = completed ? best.result.cost / step_cost : options.give_up_at;
    const StepResult result = simulate(step, options);
    if (result.outcome == StepResult::kCompleted && (!completed || result.cost < best.result.cost)) {
      options.give_up_at = SimulatorOptions().give_up_at;
      best = {options, result};
    }
  };
  for (const bool step_known : {true, false}) {
    for (const double horizon : {0.03, 0.1, 0.3, 1.0, 3.0}) {
      for (const double floor : {0.0, 0.01, 0.03, 0.1}) {
        for (const double share : {0.1, 0.25, 0.5, 1.0}) {
          attempt({.budget = budget,
                   .step_known = step_known,
                   .rule = {.share = share, .horizon = horizon, .floor = floor}});
        }
      }
    }
  }
  return best;
}

}  // namespace ac2::internal
