#include "benchmarks/simulator/rule_search.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "benchmarks/simulator/rule_moves.h"
#include "benchmarks/simulator/step_attempts.h"

namespace ac2::internal {

namespace {

// The constants alone are changed so often before values are.
constexpr int kConstantMoves = 150;

// The work of a search: one to three seconds for steps of some thousand ops, and less than a minute for 100,000.
constexpr int64_t kWork = 3'700'000;
constexpr int64_t kWorkPerOp = 1'100;
constexpr int64_t kMostWork = 15'000'000;

int64_t work_for(const RecordedStep& step, double effort) {
  const int64_t usual = std::min(kMostWork, kWork + kWorkPerOp * static_cast<int64_t>(step.ops.size()));
  return static_cast<int64_t>(effort * static_cast<double>(usual));
}

// The constants of a coarse grid.
void try_everywhere(StepAttempts& attempts, int64_t work) {
  SimulatorOptions options = attempts.best().options;
  for (const double horizon : {0.3, 0.03, 3.0}) {
    for (const bool by_next_use : {true, false}) {
      for (const double floor : {0.0, 0.1}) {
        for (const double share : {0.25, 1.0}) {
          for (const double power : {1.0, 1.4}) {
            if (attempts.work() < work) {
              options.by_next_use = by_next_use;
              options.rule = {.share = share, .horizon = horizon, .floor = floor, .power = power};
              attempts.attempt(options);
            }
          }
        }
      }
    }
  }
}

void climb(StepAttempts& attempts, int64_t work) {
  RuleMoves moves(attempts.step());
  const auto goes_on = [&] {
    const StepResult& best = attempts.best().result;
    return best.outcome == StepResult::kCompleted && !best.replayed.empty() && attempts.work() < work;
  };
  for (int i = 0; i < kConstantMoves && goes_on(); ++i) {
    attempts.attempt(moves.change_constants(attempts.best()));
  }
  while (goes_on()) {
    attempts.attempt(moves.change_something(attempts.best()));
  }
}

}  // namespace

RuleChoice best_rule(const RecordedStep& step, int64_t budget, double effort) {
  RuleChoice choice;
  choice.options = {.budget = budget, .step_known = true};
  choice.result = simulate(step, choice.options);
  StepAttempts attempts(step, std::move(choice));
  const int64_t work = work_for(step, effort);
  try_everywhere(attempts, work);
  climb(attempts, work);
  return attempts.best();
}

RuleChoice improve_rule(const RecordedStep& step, RuleChoice choice) {
  StepAttempts attempts(step, std::move(choice));
  climb(attempts, work_for(step, 1));
  return attempts.best();
}

}  // namespace ac2::internal
