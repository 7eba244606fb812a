#include "benchmarks/planned_traces.h"

#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "benchmarks/dtr_trace.h"

namespace ac2::benchmarks {

std::optional<std::vector<double>> read_budgets(const std::string& program, const std::vector<std::string>& texts) {
  std::vector<double> budgets;
  for (const std::string& text : texts) {
    double& budget = budgets.emplace_back();
    if (!absl::SimpleAtod(text, &budget) || !(budget > 0 && budget <= 1)) {
      absl::FPrintF(stderr, "%s: --budget is \"%s\"; it must be above 0 and at most 1\n", program, text);
      return std::nullopt;
    }
  }
  return budgets;
}

int for_each_trace(const std::string& program, const std::vector<std::string>& paths,
                   const std::function<void(const std::string&, const internal::RecordedStep&)>& fn) {
  for (const std::string& path : paths) {
    const auto step = read_dtr_trace(path);
    if (!step.ok()) {
      absl::FPrintF(stderr, "%s: %s\n", program, step.status().message());
      return 1;
    }
    fn(path, *step);
  }
  return 0;
}

int64_t print_step(const std::string& name, const TracedStep& step, internal::Planner& planner) {
  const int64_t all = planner.keep_all().outcome.peak_bytes;
  absl::PrintF("%s: %d ops of forward, %.0f ms, backward %.0f ms, %.2f GB held\n", name, step.graph.ops.size(),
               step.forward_cost / 1e6, step.backward_cost / 1e6, static_cast<double>(all) / 1e9);
  return all;
}

std::string time_text(const internal::KeepOutcome* outcome, double recorded_time) {
  return outcome != nullptr ? absl::StrFormat("%.3f", 1 + outcome->extra_cost() / recorded_time) : "none";
}

}  // namespace ac2::benchmarks
