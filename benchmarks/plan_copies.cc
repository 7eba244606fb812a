// The time that copies to the host's memory save a plan, on recorded steps.
//
//   plan_copies densenet121.log lstm.log --budget=0.5,0.3,0.2 --link=25
//
// TRACE is a file of the DTR prototype (arXiv 2006.09616; see dtr_trace.h and traced_step.h). A budget is a fraction of
// what forward holds for backward without recomputation. Printed for each: the time of the step over the recorded time,
// as the planner estimates it, if values are replayed, copied (none is replayed), or whichever is better; of the last
// the replays and the waiting in shares of the recorded time, what is copied, and the seconds of planning.
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
#include "ac2/internal/planning/copy_planner.h"
#include "ac2/internal/planning/keep_simulator.h"
#include "ac2/internal/planning/planner.h"
#include "benchmarks/planned_traces.h"
#include "benchmarks/traced_step.h"

ABSL_FLAG(std::vector<std::string>, budget, std::vector<std::string>({"0.5", "0.3", "0.2"}),
          "budgets, each a fraction of what is held without recomputation: above 0, at most 1");
ABSL_FLAG(double, link, 25, "GB that are copied in a second each way");
ABSL_FLAG(int64_t, min_bytes, 1 << 20, "smaller values are not copied");

namespace {

using ac2::benchmarks::for_each_trace;
using ac2::benchmarks::print_step;
using ac2::benchmarks::read_budgets;
using ac2::benchmarks::time_text;
using ac2::benchmarks::TracedStep;
using ac2::internal::CopyPlan;
using ac2::internal::CopyPlanner;
using ac2::internal::KeepPlan;
using ac2::internal::Planner;
using ac2::internal::RecordedStep;

void print_plans(const std::string& name, const TracedStep& step, const std::vector<double>& budgets) {
  const double time = step.forward_cost + step.backward_cost;
  const double speed = absl::GetFlag(FLAGS_link);  // GB/s are bytes a ns
  Planner planner(step.graph);
  const int64_t all = print_step(name, step, planner);
  for (const double budget : budgets) {
    const auto bytes = static_cast<int64_t>(budget * static_cast<double>(all));
    const std::optional<KeepPlan> replays = planner.solve(bytes);
    CopyPlanner planner_with_copies(step.graph, planner, speed);
    const std::optional<CopyPlan> copies = planner_with_copies.copies_alone(bytes);
    const auto start = std::chrono::steady_clock::now();
    const std::optional<CopyPlan> plan = planner_with_copies.solve(bytes);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    absl::PrintF("%6g %9s %9s ", budget, time_text(replays ? &replays->outcome : nullptr, time),
                 time_text(copies ? &copies->keep.outcome : nullptr, time));
    if (plan) {
      const auto& outcome = plan->keep.outcome;
      absl::PrintF("%9.3f %9.3f %9.3f %9.2f %9.1f\n", 1 + outcome.extra_cost() / time, outcome.replay_cost / time,
                   outcome.copy_wait / time, static_cast<double>(outcome.copied_bytes) / 1e9, seconds);
    } else {
      absl::PrintF("%9s\n", "none");
    }
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("The time that copies to the host's memory save a plan; see the top of the source.");
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  const std::optional<std::vector<double>> budgets = read_budgets("plan_copies", absl::GetFlag(FLAGS_budget));
  if (!budgets) return 2;
  if (arguments.size() < 2 || !(absl::GetFlag(FLAGS_link) > 0) || absl::GetFlag(FLAGS_min_bytes) < 0) {
    absl::FPrintF(stderr, "plan_copies: expected traces, a --link above 0, and --min_bytes that are not negative\n");
    return 2;
  }
  absl::PrintF("%6s %9s %9s %9s %9s %9s %9s %9s\n", "budget", "replays", "copies", "both", "replayed", "waited",
               "copied GB", "plan, s");
  const std::vector<std::string> paths(arguments.begin() + 1, arguments.end());
  return for_each_trace("plan_copies", paths, [&](const std::string& path, const RecordedStep& recorded) {
    print_plans(path, ac2::benchmarks::traced_step(recorded, absl::GetFlag(FLAGS_min_bytes)), *budgets);
  });
}
