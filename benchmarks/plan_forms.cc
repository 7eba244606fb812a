// The time that forms save a plan, on recorded steps: copies to the host's memory, packing in 8 bits, and both.
//
//   plan_forms densenet121.log lstm.log --budget=0.3,0.2 --link=25 --speed=110
//
// TRACE is a file of the DTR prototype (arXiv 2006.09616; see dtr_trace.h and traced_step.h). A budget is a fraction of
// what forward holds for backward without recomputation. The narrower form is that of forms::quantized(8) for values of
// type float: a byte a number and eight bytes for each 256 numbers. Printed for each budget: the time of the step over
// the recorded time, as the planner estimates it, if values are computed again, if all that must go is held in one form
// and nothing is computed again, if each form stands beside computing again, and if all do; of the last the replays and
// each form in shares of the recorded time, the bytes in each form, and the seconds of planning.
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
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "ac2/internal/planning/form_planner.h"
#include "ac2/internal/planning/keep_simulator.h"
#include "ac2/internal/planning/planner.h"
#include "ac2/internal/planning/step_graph.h"
#include "benchmarks/planned_traces.h"
#include "benchmarks/traced_step.h"

ABSL_FLAG(std::vector<std::string>, budget, std::vector<std::string>({"0.3", "0.2"}),
          "budgets, each a fraction of what is held without recomputation: above 0, at most 1");
ABSL_FLAG(double, link, 25, "GB that are copied to the host in a second each way");
ABSL_FLAG(int64_t, copy_min_bytes, 1 << 20, "smaller values are not copied");
ABSL_FLAG(double, speed, 110, "GB of values that are packed and unpacked in a second");
ABSL_FLAG(int64_t, pack_min_bytes, 1 << 10, "smaller values are not packed");

namespace {

using ac2::benchmarks::for_each_trace;
using ac2::benchmarks::print_step;
using ac2::benchmarks::read_budgets;
using ac2::benchmarks::time_text;
using ac2::benchmarks::TracedStep;
using ac2::internal::FormPlan;
using ac2::internal::FormPlanner;
using ac2::internal::KeepOutcome;
using ac2::internal::KeepPlan;
using ac2::internal::Planner;
using ac2::internal::RecordedStep;
using ac2::internal::StepGraph;

constexpr int64_t kBytesOfNumber = 4, kBytesOfBlock = 8, kNumbersOfBlock = 256;
constexpr uint8_t kCopies = 0, kPacking = 1;

bool may_have_form(const StepGraph::Value& value, int64_t min_bytes) {
  return value.op != StepGraph::kOutside && value.bytes > 0 && value.bytes >= min_bytes;
}

// With one of the forms, or both.
StepGraph with_forms(StepGraph graph, bool copies, bool packing) {
  graph.forms = {StepGraph::Queue::kCopies, StepGraph::Queue::kOps};
  for (StepGraph::Value& value : graph.values) {
    if (copies && may_have_form(value, absl::GetFlag(FLAGS_copy_min_bytes))) {
      value.forms.push_back({.form = kCopies});
    }
    if (packing && may_have_form(value, absl::GetFlag(FLAGS_pack_min_bytes))) {
      const int64_t numbers = value.bytes / kBytesOfNumber;
      // GB/s are bytes a ns. Unpacking takes a quarter of both, as policies/internal/quantize measures.
      const double cost = static_cast<double>(value.bytes) / absl::GetFlag(FLAGS_speed);
      value.forms.push_back({.form = kPacking,
                             .bytes = numbers + kBytesOfBlock * ((numbers + kNumbersOfBlock - 1) / kNumbersOfBlock),
                             .pack_cost = 0.75 * cost,
                             .unpack_cost = 0.25 * cost});
    }
  }
  return graph;
}

// A step with some forms, and its planners.
struct Plans {
  explicit Plans(StepGraph step)
      : graph(std::move(step)), planner(graph), forms(graph, planner, absl::GetFlag(FLAGS_link)) {}

  StepGraph graph;
  Planner planner;
  FormPlanner forms;
};

const KeepOutcome* outcome_of(const std::optional<FormPlan>& plan) {
  return plan ? &plan->keep.outcome : nullptr;
}

void print_plans(const std::string& name, const TracedStep& step, const std::vector<double>& budgets) {
  const double time = step.forward_cost + step.backward_cost;
  Plans copies(with_forms(step.graph, true, false)), packing(with_forms(step.graph, false, true));
  Plans all(with_forms(step.graph, true, true));
  const int64_t held = print_step(name, step, all.planner);
  const auto text = [&](const std::optional<FormPlan>& plan) { return time_text(outcome_of(plan), time); };
  for (const double budget : budgets) {
    const auto bytes = static_cast<int64_t>(budget * static_cast<double>(held));
    const std::optional<KeepPlan> replays = all.planner.solve(bytes);
    absl::PrintF("%6g %8s %8s %8s ", budget, time_text(replays ? &replays->outcome : nullptr, time),
                 text(all.forms.alone(kCopies, bytes)), text(all.forms.alone(kPacking, bytes)));
    absl::PrintF("%8s %8s ", text(copies.forms.solve(bytes)), text(packing.forms.solve(bytes)));
    const auto start = std::chrono::steady_clock::now();
    const std::optional<FormPlan> plan = all.forms.solve(bytes);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    absl::PrintF("%8s ", text(plan));
    if (const KeepOutcome* outcome = outcome_of(plan)) {
      const auto gb = [](const KeepOutcome::FormUse& use) { return static_cast<double>(use.bytes) / 1e9; };
      const KeepOutcome::FormUse &copied = outcome->uses[kCopies], &packed = outcome->uses[kPacking];
      absl::PrintF("%8.3f %8.3f %8.3f %9.2f %9.2f %7.1f", outcome->replay_cost / time, copied.cost / time,
                   packed.cost / time, gb(copied), gb(packed), seconds);
    }
    absl::PrintF("\n");
    std::fflush(stdout);
  }
  const auto share = [&](const KeepPlan& plan) {
    return static_cast<double>(plan.outcome.peak_bytes) / static_cast<double>(held);
  };
  absl::PrintF("smallest: %.3f with replays alone, %.3f with copies, %.3f with packing, %.3f with both\n",
               share(all.planner.smallest()), share(copies.forms.smallest().keep), share(packing.forms.smallest().keep),
               share(all.forms.smallest().keep));
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("The time that forms save a plan; see the top of the source.");
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  const std::optional<std::vector<double>> budgets = read_budgets("plan_forms", absl::GetFlag(FLAGS_budget));
  if (!budgets) return 2;
  const bool speeds = absl::GetFlag(FLAGS_link) > 0 && absl::GetFlag(FLAGS_speed) > 0;
  const bool sizes = absl::GetFlag(FLAGS_copy_min_bytes) >= 0 && absl::GetFlag(FLAGS_pack_min_bytes) >= 0;
  if (arguments.size() < 2 || !speeds || !sizes) {
    absl::FPrintF(stderr,
                  "plan_forms: expected traces, a --link and a --speed above 0, and --copy_min_bytes and "
                  "--pack_min_bytes that are not negative\n");
    return 2;
  }
  absl::PrintF("%6s %8s %8s %8s %8s %8s %8s %8s %8s %8s %9s %9s %7s\n", "budget", "replays", "copies", "packing",
               "+copies", "+packing", "all", "replayed", "waited", "packing", "copied GB", "packed GB", "plan, s");
  const std::vector<std::string> paths(arguments.begin() + 1, arguments.end());
  return for_each_trace("plan_forms", paths, [&](const std::string& path, const RecordedStep& recorded) {
    print_plans(path, ac2::benchmarks::traced_step(recorded), *budgets);
  });
}
