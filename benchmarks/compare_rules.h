// The library's rule beside others, on recorded steps: what `budget_simulator --compare_rules` prints.
//
// A line for each trace and budget: the time over the recorded time by the library's rule, in the first step and in
// the last of `steps`, and by each other rule of simulator/step_simulator.h, which has no use for a step before. At the
// end of the line stands by how much the library's are above the least of the others, in percent, or below it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ac2::benchmarks {

// An error where a trace cannot be read. A budget that a rule does not meet is "not met", and no error.
absl::Status compare_rules(const std::vector<std::string>& traces, const std::vector<double>& budgets, int steps);

}  // namespace ac2::benchmarks
