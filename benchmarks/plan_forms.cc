// The time that a narrower form saves a plan, on recorded steps.
//
//   plan_forms densenet121.log lstm.log --budget=0.3,0.2
//
// TRACE is a file of the DTR prototype (arXiv 2006.09616; see dtr_trace.h and traced_step.h). A budget is a fraction of
// what forward holds for backward without recomputation. The form is that of quantized_form(8) for values of type
// float: a byte a number and eight bytes for each 256 numbers. Printed for each budget: the time of the step over the
// recorded time, as the planner estimates it, with replays alone and where values may also be packed; of the latter the
// replays and the packing in shares of the recorded time, what is packed, and the seconds of planning; and the smallest
// plans of both, in shares of what is held.
//
// Exit status: 0; 1 if a trace cannot be read; 2 for a wrong command line.
#include <absl/flags/flag.h>
#include <absl/flags/parse.h>
#include <absl/flags/usage.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "ac2/internal/planning/keep_simulator.h"
#include "ac2/internal/planning/narrow_planner.h"
#include "ac2/internal/planning/planner.h"
#include "benchmarks/planned_traces.h"
#include "benchmarks/traced_step.h"

ABSL_FLAG(std::vector<std::string>, budget, std::vector<std::string>({"0.3", "0.2"}),
          "budgets, each a fraction of what is held without recomputation: above 0, at most 1");
ABSL_FLAG(double, speed, 0, "GB of values that are packed and unpacked in a second");
ABSL_FLAG(int64_t, min_bytes, 1 << 10, "smaller values are not packed");

namespace {

using ac2::benchmarks::for_each_trace;
using ac2::benchmarks::print_step;
using ac2::benchmarks::read_budgets;
using ac2::benchmarks::time_text;
using ac2::benchmarks::TracedStep;
using ac2::internal::KeepOutcome;
using ac2::internal::KeepPlan;
using ac2::internal::NarrowPlanner;
using ac2::internal::Planner;
using ac2::internal::RecordedStep;
using ac2::internal::StepGraph;

constexpr int64_t kBytesOfNumber = 4, kBytesOfBlock = 8, kNumbersOfBlock = 256;

void let_narrow(double speed, int64_t min_bytes, StepGraph& graph) {
  for (StepGraph::Value& value : graph.values) {
    const int64_t numbers = value.bytes / kBytesOfNumber;
    value.narrows = value.op != StepGraph::kOutside && value.bytes >= min_bytes;
    value.narrow_bytes = numbers + kBytesOfBlock * ((numbers + kNumbersOfBlock - 1) / kNumbersOfBlock);
    value.narrow_cost = static_cast<double>(value.bytes) / speed;  // GB/s are bytes a ns
  }
}

void print_plans(const std::string& name, const TracedStep& step, const std::vector<double>& budgets) {
  const double time = step.forward_cost + step.backward_cost;
  Planner planner(step.graph);
  NarrowPlanner forms(step.graph, planner);
  const int64_t all = print_step(name, step, planner);
  for (const double budget : budgets) {
    const auto bytes = static_cast<int64_t>(budget * static_cast<double>(all));
    const std::optional<KeepPlan> replays = planner.solve(bytes);
    const auto start = std::chrono::steady_clock::now();
    const std::optional<KeepPlan> plan = forms.solve(bytes);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    absl::PrintF("%6g %9s %9s ", budget, time_text(replays ? &replays->outcome : nullptr, time),
                 time_text(plan ? &plan->outcome : nullptr, time));
    if (plan) {
      const KeepOutcome& outcome = plan->outcome;
      absl::PrintF("%9.3f %9.3f %9.2f %9.1f", outcome.replay_cost / time, outcome.narrow_cost / time,
                   static_cast<double>(outcome.narrowed_bytes) / 1e9, seconds);
    }
    absl::PrintF("\n");
    std::fflush(stdout);
  }
  const auto share = [&](const KeepPlan& plan) {
    return static_cast<double>(plan.outcome.peak_bytes) / static_cast<double>(all);
  };
  absl::PrintF("smallest: %.3f with replays alone, %.3f with the form\n", share(planner.smallest()),
               share(forms.smallest()));
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("The time that a narrower form saves a plan; see the top of the source.");
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  const std::optional<std::vector<double>> budgets = read_budgets("plan_forms", absl::GetFlag(FLAGS_budget));
  if (!budgets) return 2;
  if (arguments.size() < 2 || !(absl::GetFlag(FLAGS_speed) > 0) || absl::GetFlag(FLAGS_min_bytes) < 0) {
    absl::FPrintF(stderr, "plan_forms: expected traces, a --speed above 0, and --min_bytes that are not negative\n");
    return 2;
  }
  absl::PrintF("%6s %9s %9s %9s %9s %9s %9s\n", "budget", "replays", "forms", "replayed", "packing", "packed GB",
               "plan, s");
  const std::vector<std::string> paths(arguments.begin() + 1, arguments.end());
  return for_each_trace("plan_forms", paths, [&](const std::string& path, const RecordedStep& recorded) {
    TracedStep step = ac2::benchmarks::traced_step(recorded, /*copy_min_bytes=*/0);
    let_narrow(absl::GetFlag(FLAGS_speed), absl::GetFlag(FLAGS_min_bytes), step.graph);
    print_plans(path, step, *budgets);
  });
}
