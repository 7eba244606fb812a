// How long the planner takes for a step, and how good its plans are.
//
//   planner_benchmark --ops=1000,10000,100000 --budget=0.5
//
// Plans steps of networks, given as graphs without tensors (benchmarks/networks/network_steps.h), for a fraction of the
// bytes that are held without recomputation. Printed for each: the ops, the seconds until the planner is ready, those
// that one plan takes, what the plan replays in shares of a forward, and the bytes at which it peaks over the bytes
// that it may take. Times are those of one thread of this machine; the other figures are the same on every machine.
//
// Exit status: 0; 1 if there is no plan within the bytes; 2 for a wrong command line.
#include <absl/flags/flag.h>
#include <absl/flags/parse.h>
#include <absl/flags/usage.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "ac2/internal/planning/planner.h"
#include "benchmarks/networks/network_steps.h"

ABSL_FLAG(std::vector<std::string>, ops, std::vector<std::string>({"1000", "10000", "100000"}),
          "about how many ops the steps have: at least 10 each");
ABSL_FLAG(std::vector<std::string>, budget, std::vector<std::string>({"0.5", "0.25"}),
          "budgets, each a fraction of the bytes held without recomputation: above 0, at most 1");
ABSL_FLAG(std::vector<std::string>, network, std::vector<std::string>({"chain", "transformer", "lstm", "u_shaped"}),
          "which networks; u_shaped has a few hundred ops at most");

namespace {

using ac2::internal::KeepPlan;
using ac2::internal::NetworkStep;
using ac2::internal::Planner;

constexpr int kDeepest = 40;  // levels of the U-shaped network: sizes double with each

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Null if there is no network of that name.
std::optional<NetworkStep> step_of(const std::string& network, int ops) {
  if (network == "chain") {
    return ac2::internal::sines_step(ops);
  }
  if (network == "transformer") {
    return ac2::internal::transformer_step(std::max(1, ops / 9));
  }
  if (network == "lstm") {
    return ac2::internal::lstm_step(std::max(1, ops / 7));
  }
  if (network == "u_shaped") {
    return ac2::internal::u_shaped_step(std::clamp(ops / 11, 1, kDeepest));
  }
  return std::nullopt;
}

// Returns whether there is a plan for each budget.
bool plan(const std::string& network, const NetworkStep& step, const std::vector<double>& budgets) {
  const auto start = std::chrono::steady_clock::now();
  Planner planner(step.graph);
  const int64_t all = planner.keep_all().outcome.peak_bytes;
  const double ready = seconds_since(start);
  bool planned = true;
  for (const double budget : budgets) {
    const auto bytes = static_cast<int64_t>(budget * static_cast<double>(all));
    const auto begun = std::chrono::steady_clock::now();
    const std::optional<KeepPlan> found = planner.solve(bytes);
    const double took = seconds_since(begun);
    absl::PrintF("%-12s %8d %7g %9.2f %9.2f ", network, step.graph.ops.size(), budget, ready, took);
    if (!found) {
      planned = false;
      absl::PrintF("no plan; the smallest takes %.3f\n",
                   static_cast<double>(planner.smallest().outcome.peak_bytes) / static_cast<double>(all));
      continue;
    }
    absl::PrintF("%12.5f %9.4f\n", found->outcome.replay_cost / step.cost(),
                 static_cast<double>(found->outcome.peak_bytes) / static_cast<double>(bytes));
    std::fflush(stdout);
  }
  return planned;
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("How long the planner takes, and how good its plans are; see the top of the source.");
  absl::ParseCommandLine(argc, argv);
  std::vector<double> budgets;
  for (const std::string& text : absl::GetFlag(FLAGS_budget)) {
    double& budget = budgets.emplace_back();
    if (!absl::SimpleAtod(text, &budget) || !(budget > 0 && budget <= 1)) {
      absl::FPrintF(stderr, "planner_benchmark: --budget is \"%s\"; it must be above 0 and at most 1\n", text);
      return 2;
    }
  }
  std::vector<int> sizes;
  for (const std::string& text : absl::GetFlag(FLAGS_ops)) {
    int& ops = sizes.emplace_back();
    if (!absl::SimpleAtoi(text, &ops) || ops < 10) {
      absl::FPrintF(stderr, "planner_benchmark: --ops is \"%s\"; it must be a number of at least 10\n", text);
      return 2;
    }
  }
  absl::PrintF("%-12s %8s %7s %9s %9s %12s %9s\n", "network", "ops", "budget", "ready, s", "plan, s", "replayed",
               "of budget");
  bool planned = true;
  for (const std::string& network : absl::GetFlag(FLAGS_network)) {
    size_t last = 0;
    for (const int ops : sizes) {
      const std::optional<NetworkStep> step = step_of(network, ops);
      if (!step) {
        absl::FPrintF(stderr, "planner_benchmark: no network \"%s\"; there are chain, transformer, lstm and u_shaped\n",
                      network);
        return 2;
      }
      // The U-shaped network does not grow any more.
      if (step->graph.ops.size() != last) {
        planned = plan(network, *step, budgets) && planned;
      }
      last = step->graph.ops.size();
    }
  }
  return planned ? 0 : 1;
}
