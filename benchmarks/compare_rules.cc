#include "benchmarks/compare_rules.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "benchmarks/dtr_trace.h"
#include "benchmarks/simulator/step_simulator.h"

namespace ac2::benchmarks {

namespace {

using internal::OtherRuleName;
using internal::RecordedStep;
using internal::StepResult;

constexpr double kNotMet = std::numeric_limits<double>::infinity();

// A step that takes longer under another rule has not met its budget in any useful way, and simulating it takes long.
constexpr double kGiveUpAt = 5;

constexpr std::array<std::pair<OtherRuleName, const char*>, 5> kOthers = {{
    {OtherRuleName::kDtr, "DTR"},
    {OtherRuleName::kDtrClasses, "DTR-eq"},
    {OtherRuleName::kDtrLocal, "local"},
    {OtherRuleName::kLru, "LRU"},
    {OtherRuleName::kLargest, "largest"},
}};

std::string name_of(const std::string& path) {
  const std::string name = path.substr(path.find_last_of('/') + 1);
  return name.substr(0, name.find_last_of('.'));
}

double overhead(const RecordedStep& step, const StepResult& result) {
  return result.outcome == StepResult::kCompleted ? result.cost / step.cost() : kNotMet;
}

std::string text(double overhead) {
  return overhead == kNotMet ? "not met" : absl::StrFormat("%.4f", overhead);
}

// In percent.
std::string difference(double ours, double other) {
  if (ours == kNotMet) {
    return other == kNotMet ? "" : "above";
  }
  return other == kNotMet ? "below" : absl::StrFormat("%+.2f", 100 * (ours / other - 1));
}

void print_line(const std::string& name, const RecordedStep& step, double fraction, int64_t budget, int steps) {
  internal::StepStore store;
  double first = kNotMet;
  double last = kNotMet;
  for (int i = 0; i < steps; ++i) {
    last = overhead(step, internal::simulate(step, {.budget = budget, .store = &store}));
    first = i == 0 ? last : first;
  }
  absl::PrintF("%-16s %6g %9s %9s", name, fraction, text(first), text(last));
  double least = kNotMet;
  for (const auto& [rule, _] : kOthers) {
    const double other =
        overhead(step, internal::simulate(step, {.budget = budget, .other_rule = rule, .give_up_at = kGiveUpAt}));
    least = std::min(least, other);
    absl::PrintF(" %9s", text(other));
  }
  absl::PrintF(" %8s %8s\n", difference(first, least), difference(last, least));
  std::fflush(stdout);
}

}  // namespace

absl::Status compare_rules(const std::vector<std::string>& traces, const std::vector<double>& budgets, int steps) {
  absl::PrintF("%-16s %6s %9s %9s", "trace", "budget", "step 1", absl::StrCat("step ", steps));
  for (const auto& [_, name] : kOthers) {
    absl::PrintF(" %9s", name);
  }
  absl::PrintF(" %8s %8s\n", "1, %", absl::StrCat(steps, ", %"));
  for (const std::string& path : traces) {
    const absl::StatusOr<RecordedStep> step = read_dtr_trace(path);
    if (!step.ok()) {
      return step.status();
    }
    const auto peak = static_cast<double>(internal::simulate(*step, {}).peak_bytes);
    for (const double fraction : budgets) {
      print_line(name_of(path), *step, fraction, std::max<int64_t>(1, static_cast<int64_t>(fraction * peak)), steps);
    }
  }
  return absl::OkStatus();
}

}  // namespace ac2::benchmarks
