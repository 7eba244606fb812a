// The cost of a memory budget on a recorded step: the runtime's own evictor, run on paper.
//
//   budget_simulator densenet121.log --budget 0.7,0.5,0.3
//   budget_simulator densenet121.log --budget 0.5 --known_step
//   budget_simulator densenet121.log --budget 0.5 --known_step --effort 8
//   budget_simulator densenet121.log --budget 0.3,0.2 --link 25
//   budget_simulator densenet121.log --budget 0.5 --repeat 40
//   budget_simulator densenet121.log lstm.log --budget 0.5,0.3,0.15 --compare_rules --repeat 5
//
// TRACE is a file of the DTR prototype (arXiv 2006.09616; see dtr_trace.h). A budget is a fraction of the bytes that
// the step holds at its peak without one, what comes from outside (weights, inputs) included. Printed for each: the
// budget and the peak in bytes, the time of all ops run and that over the recorded time, how many needed values were
// dropped and ops run again, and the evictor's own time per value dropped.
//
// --known_step searches for the rule that makes the step cheapest, which takes about a second for a step of some
// thousand ops. --effort says how much longer than that it may take.
//
// --repeat runs the step that often, as training does, and prints a line for each: what the library remembers of a step
// helps in the next ones. Beside the figures stand the setting of the rule (whether it goes by the last or the next
// use, share, horizon and floor) and why: "plain" where nothing is known, "try" where it is found out what the setting
// costs, "given up" if that was more than the best, and "best".
//
// --link says that the host's memory lies behind the device, and how many GB a second are copied each way. Each budget
// is then met in several ways, in a line each: by recomputing, by copying values out and back, and by whichever is
// cheaper for a value, all with the step known; and as the library does it in the first and in the fifth step. The time
// is that of the device, "waited" is the part of it in which it waited for copies, and "copied" has both ways.
//
// --compare_rules sets the library's rule beside those of DTR and simple ones, on one trace or more: compare_rules.h
// says what the columns are. --repeat is then how often the library runs the step.
//
// Exit status: 0; 1 if the trace cannot be read or a budget cannot be met; 2 for a wrong command line.
#include <absl/flags/flag.h>
#include <absl/flags/parse.h>
#include <absl/flags/usage.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "benchmarks/compare_rules.h"
#include "benchmarks/dtr_trace.h"
#include "benchmarks/simulator/bytes_at_once.h"
#include "benchmarks/simulator/rule_search.h"
#include "benchmarks/simulator/step_simulator.h"

ABSL_FLAG(std::vector<std::string>, budget, std::vector<std::string>({"0.7", "0.5", "0.3"}),
          "budgets, each a fraction of the peak without one: above 0, at most 1");
ABSL_FLAG(
    bool, known_step, false,
    "the evictor has a recording of the step: it knows when each value is used next, and tries the constants of its "
    "rule out on it");
ABSL_FLAG(double, effort, 1, "how much longer than usual the constants for a known step are searched for");
ABSL_FLAG(double, link, 0,
          "GB a second between the device and the host's memory, each way; 0: values are only computed again");
ABSL_FLAG(int, repeat, 1, "how often the step runs; with more than one, a line for each");
ABSL_FLAG(bool, compare_rules, false, "the rules of DTR and simple ones beside the library's, on one trace or more");

namespace {

using ac2::internal::RecordedStep;
using ac2::internal::SimulatorOptions;
using ac2::internal::StepResult;
using ac2::internal::StepStore;

// The outcome that any way to run the step has if the budget is below what the step has at once; kCompleted if not.
StepResult check(const RecordedStep& step, int64_t budget) {
  StepResult result;
  const ac2::internal::BytesAtOnce beyond = ac2::internal::first_beyond(step, budget);
  if (beyond.bytes > 0) {
    result.outcome = StepResult::kOutOfMemory;
    result.failed_op = beyond.op;
    result.missing_bytes = beyond.bytes - budget;
  }
  return result;
}

StepResult run(const RecordedStep& step, int64_t budget, bool known_step) {
  const StepResult beyond = check(step, budget);
  if (beyond.outcome != StepResult::kCompleted) {
    return beyond;
  }
  if (known_step) {
    return ac2::internal::best_rule(step, budget, absl::GetFlag(FLAGS_effort)).result;
  }
  return ac2::internal::simulate(step, {.budget = budget});
}

// Between `failing` and `met`, to a thousandth of `peak`. Each budget is tried with the constants of the rule alone: a
// search for each of the ten would take minutes for a long step.
int64_t smallest_budget(const RecordedStep& step, int64_t failing, int64_t met, int64_t peak, bool known_step) {
  const auto is_met = [&](int64_t budget) {
    const StepResult result = ac2::internal::simulate(step, {.budget = budget, .step_known = known_step});
    return result.outcome == StepResult::kCompleted;
  };
  // Nothing below is met, and much more than that is seldom needed.
  const int64_t least = std::max(failing + 1, ac2::internal::least_bytes(step));
  if (is_met(least)) {
    return least;
  }
  failing = least;
  while (met - failing > peak / 1000) {
    const int64_t middle = failing + (met - failing) / 2;
    (is_met(middle) ? met : failing) = middle;
  }
  return met;
}

void explain_failure(const RecordedStep& step, double fraction, int64_t budget, const StepResult& result, int64_t peak,
                     bool known_step) {
  std::string why = absl::StrFormat("running took more than %.0f times the recorded time or %d replays",
                                    SimulatorOptions().give_up_at, SimulatorOptions().most_replays);
  if (result.outcome == StepResult::kOutOfMemory) {
    const std::string op = result.failed_op == ac2::internal::kNoId
                               ? "what comes from outside or is there at the end"
                               : absl::StrFormat("%s (op %d)", step.ops[result.failed_op].name, result.failed_op);
    why = absl::StrFormat("%s needs %d bytes more", op, result.missing_bytes);
  }
  const int64_t smallest = smallest_budget(step, budget, peak, peak, known_step);
  absl::FPrintF(
      stderr,
      "budget_simulator: a budget of %g (%d bytes) cannot be met: %s. The smallest that was met on trying is %.3f "
      "(%d bytes).\n",
      fraction, budget, why, std::ceil(1000.0 * smallest / peak) / 1000, smallest);
}

std::string describe(const StepResult& result) {
  const ac2::internal::RuleSetting& setting = result.setting;
  const char* why = result.given_up ? "given up" : result.tried ? "try" : setting.is_plain() ? "plain" : "best";
  return absl::StrFormat("%s use, %g, %g, %g: %s", setting.next_uses ? "next" : "last", setting.constants.share,
                         setting.constants.horizon, setting.constants.floor, why);
}

// False if a step cannot be met that was not tried out, which is returned in `failed`.
bool run_repeatedly(const RecordedStep& step, double fraction, int64_t budget, int times, StepResult& failed) {
  StepStore store;
  const double recorded = step.cost();
  failed = check(step, budget);
  if (failed.outcome != StepResult::kCompleted) {
    return false;
  }
  for (int i = 1; i <= times; ++i) {
    const StepResult result = ac2::internal::simulate(step, {.budget = budget, .store = &store});
    if (result.outcome != StepResult::kCompleted && !result.tried) {
      failed = result;
      return false;
    }
    const std::string time =
        result.outcome == StepResult::kCompleted ? absl::StrFormat("%.4f", result.cost / recorded) : "not met";
    absl::PrintF("%6g %5d %15d %11.3f %11s %9d %10d   %s\n", fraction, i, result.peak_bytes, result.cost / 1e6, time,
                 result.evictions, result.replayed.size(), describe(result));
  }
  return true;
}

// The cheaper of the runs that know the step and that do not.
StepResult recompute(const RecordedStep& step, int64_t budget) {
  const StepResult plain = ac2::internal::simulate(step, {.budget = budget});
  const StepResult known = ac2::internal::simulate(step, {.budget = budget, .step_known = true});
  if (known.outcome != StepResult::kCompleted) {
    return plain;
  }
  return plain.outcome == StepResult::kCompleted && plain.cost <= known.cost ? plain : known;
}

StepResult copy(const RecordedStep& step, int64_t budget, double bytes_per_ns, bool recomputes) {
  SimulatorOptions options;
  options.budget = budget;
  options.step_known = true;
  options.link_bytes_per_ns = bytes_per_ns;
  options.recomputes = recomputes;
  return ac2::internal::simulate(step, options);
}

// As the library does it when the step has run that often.
StepResult library(const RecordedStep& step, int64_t budget, double bytes_per_ns, int times) {
  StepStore store;
  StepResult result;
  for (int i = 0; i < times; ++i) {
    result = ac2::internal::simulate(step, {.budget = budget, .store = &store, .link_bytes_per_ns = bytes_per_ns});
  }
  return result;
}

// False if the budget cannot be met in one of the ways.
bool run_with_link(const RecordedStep& step, double fraction, int64_t budget, double gb_per_second) {
  const double recorded = step.cost();
  bool all_met = true;
  for (const auto& [way, result] : {std::pair("recompute", recompute(step, budget)),
                                    {"offload", copy(step, budget, gb_per_second, false)},
                                    {"both", copy(step, budget, gb_per_second, true)},
                                    {"library 1", library(step, budget, gb_per_second, 1)},
                                    {"library 5", library(step, budget, gb_per_second, 5)}}) {
    const bool is_met = result.outcome == StepResult::kCompleted;
    all_met = all_met && is_met;
    const std::string time = is_met ? absl::StrFormat("%.4f", result.cost / recorded) : "not met";
    absl::PrintF("%6g %-10s %15d %11.3f %11s %9.4f %10.3f %10d\n", fraction, way, result.peak_bytes, result.cost / 1e6,
                 time, result.waited / recorded, static_cast<double>(result.copied_bytes) / 1e9,
                 result.replayed.size());
  }
  return all_met;
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "what a memory budget would cost on a recorded step\n\n  budget_simulator TRACE --budget 0.7,0.5");
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  const bool compares = absl::GetFlag(FLAGS_compare_rules);
  if (compares ? arguments.size() < 2 : arguments.size() != 2) {
    absl::FPrintF(stderr, "budget_simulator: expected one trace%s, got %d. See --help.\n", compares ? " or more" : "",
                  arguments.size() - 1);
    return 2;
  }
  std::vector<double> fractions;
  for (const std::string& text : absl::GetFlag(FLAGS_budget)) {
    double fraction = 0;
    if (!absl::SimpleAtod(text, &fraction) || !(fraction > 0 && fraction <= 1)) {
      absl::FPrintF(
          stderr,
          "budget_simulator: --budget has \"%s\"; expected fractions of the peak, above 0 and at most 1, such as "
          "--budget 0.7,0.5\n",
          text);
      return 2;
    }
    fractions.push_back(fraction);
  }
  if (fractions.empty()) {
    absl::FPrintF(stderr, "budget_simulator: --budget is empty; expected fractions above 0 and at most 1\n");
    return 2;
  }
  const bool known_step = absl::GetFlag(FLAGS_known_step);
  const int repeat = absl::GetFlag(FLAGS_repeat);
  if (repeat < 1 || (repeat > 1 && known_step)) {
    absl::FPrintF(stderr,
                  "budget_simulator: --repeat is %d%s; expected a number from 1 on, and more than 1 only without "
                  "--known_step\n",
                  repeat, known_step ? " with --known_step" : "");
    return 2;
  }
  const double effort = absl::GetFlag(FLAGS_effort);
  if (!(effort > 0 && effort <= 1000) || (effort != 1 && !known_step)) {
    absl::FPrintF(stderr,
                  "budget_simulator: --effort is %g%s; expected a number above 0 and at most 1000, with --known_step\n",
                  effort, known_step ? "" : " without --known_step");
    return 2;
  }
  const double link = absl::GetFlag(FLAGS_link);
  if (!(link >= 0) || (link > 0 && (repeat > 1 || known_step))) {
    absl::FPrintF(stderr,
                  "budget_simulator: --link is %g%s; expected GB a second, and neither --known_step nor --repeat\n",
                  link, link > 0 ? " with another way to know the step" : "");
    return 2;
  }
  if (compares && (link > 0 || known_step)) {
    absl::FPrintF(stderr, "budget_simulator: expected neither --known_step nor --link with --compare_rules\n");
    return 2;
  }
  if (compares) {
    const absl::Status status =
        ac2::benchmarks::compare_rules({arguments.begin() + 1, arguments.end()}, fractions, repeat);
    if (!status.ok()) {
      absl::FPrintF(stderr, "budget_simulator: %s\n", std::string(status.message()));
    }
    return status.ok() ? 0 : 1;
  }
  const absl::StatusOr<RecordedStep> step = ac2::benchmarks::read_dtr_trace(arguments[1]);
  if (!step.ok()) {
    absl::FPrintF(stderr, "budget_simulator: %s\n", std::string(step.status().message()));
    return 1;
  }
  const StepResult plain = ac2::internal::simulate(*step, {});
  const int64_t peak = plain.peak_bytes;
  absl::PrintF("%d ops, %d values, peak without budget %d bytes, recorded time %.3f ms%s\n\n", step->ops.size(),
               step->values.size(), peak, plain.cost / 1e6, known_step || link > 0 ? ", step known" : "");
  if (link > 0) {
    absl::PrintF("%6s %-10s %15s %11s %11s %9s %10s %10s\n", "budget", "way", "peak", "time ms", "/ recorded", "waited",
                 "copied GB", "recomputed");
  } else if (repeat > 1) {
    absl::PrintF("%6s %5s %15s %11s %11s %9s %10s   %s\n", "budget", "step", "peak", "time ms", "/ recorded",
                 "evictions", "recomputed", "rule");
  } else {
    absl::PrintF("%6s %15s %15s %11s %11s %9s %10s %11s\n", "budget", "bytes", "peak", "time ms", "/ recorded",
                 "evictions", "recomputed", "us/eviction");
  }
  int status = 0;
  for (const double fraction : fractions) {
    const int64_t budget = static_cast<int64_t>(fraction * static_cast<double>(peak));
    if (budget < 1) {
      absl::FPrintF(stderr, "budget_simulator: a budget of %g is less than one byte\n", fraction);
      return 2;
    }
    if (link > 0) {
      status = run_with_link(*step, fraction, budget, link) ? status : 1;
      continue;
    }
    if (repeat > 1) {
      StepResult failed;
      if (!run_repeatedly(*step, fraction, budget, repeat, failed)) {
        std::fflush(stdout);
        explain_failure(*step, fraction, budget, failed, peak, known_step);
        status = 1;
      }
      continue;
    }
    const StepResult result = run(*step, budget, known_step);
    if (result.outcome != StepResult::kCompleted) {
      std::fflush(stdout);
      explain_failure(*step, fraction, budget, result, peak, known_step);
      status = 1;
      continue;
    }
    const double per_eviction =
        result.evictions == 0 ? 0 : result.evictor_seconds * 1e6 / static_cast<double>(result.evictions);
    absl::PrintF("%6g %15d %15d %11.3f %11.4f %9d %10d %11.2f\n", fraction, budget, result.peak_bytes,
                 result.cost / 1e6, result.cost / plain.cost, result.evictions, result.replayed.size(), per_eviction);
  }
  return status;
}
