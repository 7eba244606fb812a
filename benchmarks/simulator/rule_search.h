// A search for a step that is known: how the evictor should weigh values to make the step cheapest under a budget.
//
//   const RuleChoice choice = best_rule(step, budget);
//   const StepResult result = simulate(step, choice.options);
//
// The search simulates the step again and again, and keeps what is cheapest: first with constants of the rule from a
// fixed set, then with constants drawn around the best of these, and then with factors for the cost of dropping each
// single value too (rule_moves.h), until it has done so much work.
//
// Guaranteed: the same step and budget give the same result on every machine. Random numbers come from a generator that
// the C++ standard defines, and the length of the search is counted in simulated ops, not in seconds.
#pragma once

#include <cstdint>

#include "benchmarks/simulator/step_attempts.h"
#include "benchmarks/simulator/step_simulator.h"

namespace ac2::internal {

// If no simulation completes, the choice with the default constants. The work may be `effort` times the usual.
RuleChoice best_rule(const RecordedStep& step, int64_t budget, double effort = 1);

// Goes on from `choice`, whose options know the step. Returns `choice` itself if it does not complete, if nothing is
// replayed, or if nothing cheaper is found.
RuleChoice improve_rule(const RecordedStep& step, RuleChoice choice);

}  // namespace ac2::internal
