// The parts that programs which plan for recorded steps have in common: their command line, and what they print.
//
//   const std::optional<std::vector<double>> budgets = read_budgets("plan_forms", texts);
//   if (!budgets) return 2;
//   return for_each_trace("plan_forms", paths, [&](const std::string& path, const RecordedStep& step) { … });
//
// Errors go to stderr, with the name of the program.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ac2/internal/planning/keep_simulator.h"
#include "ac2/internal/planning/planner.h"
#include "benchmarks/simulator/step_simulator.h"
#include "benchmarks/traced_step.h"

namespace ac2::benchmarks {

// Fractions above 0 and at most 1. Null if a text is none, which is printed.
std::optional<std::vector<double>> read_budgets(const std::string& program, const std::vector<std::string>& texts);

// Calls fn(path, step) for each trace. Returns 0, or 1 at the first that cannot be read.
int for_each_trace(const std::string& program, const std::vector<std::string>& paths,
                   const std::function<void(const std::string&, const internal::RecordedStep&)>& fn);

// Prints a line about the step. Returns the bytes that the step holds without replays.
int64_t print_step(const std::string& name, const TracedStep& step, internal::Planner& planner);

// The time of the step over the recorded time; "none" without a plan.
std::string time_text(const internal::KeepOutcome* outcome, double recorded_time);

}  // namespace ac2::benchmarks
