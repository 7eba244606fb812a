#include "ac2/internal/report/explain.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ac2/internal/libtorch/spelling.h"
#include "ac2/internal/report/explain_budget.h"
#include "ac2/internal/report/explain_held.h"
#include "ac2/internal/report/explain_modules.h"
#include "ac2/internal/report/explain_replays.h"
#include "ac2/internal/report/explain_text.h"
#include "ac2/internal/report/holdings.h"
#include "ac2/internal/report/large_op.h"
#include "ac2/internal/report/units.h"
#include "ac2/policy.h"

namespace ac2::internal {

namespace {

// How many lines there are before "... and N more".
constexpr size_t kDecidingLines = 4;

class Explanation {
 public:
  explicit Explanation(const TraceLog& log) : log_(log), holdings_(log) {}

  std::string text() {
    const TraceStats& stats = log_.stats;
    line(absl::StrCat(
        "Region of ", count_text(stats.recorded_ops, "op"), ": ", bytes_text(stats.saved_bytes), " held for backward, ",
        count_text(stats.recomputed_ops, "op"), " replayed so far",
        stats.copied_bytes > 0 ? ", " + bytes_text(stats.copied_bytes) + " copied before overwriting" : "",
        stats.evicted_values > 0 ? ", " + count_text(stats.evicted_values, "value") + " dropped for a budget" : "",
        stats.packed_values > 0 ? ", " + count_text(stats.packed_values, "value") + " packed for a budget" : "", "."));
    section(held_lines(log_, holdings_));
    section(module_lines(log_, holdings_));
    section(large_op_lines(log_));
    section(budget_lines(log_));
    section(keeping_policy_lines(log_));
    section(whole_lines(log_, holdings_));
    explain_decisions();
    explain_verified();
    section(replay_lines(log_));
    section(long_replay_lines(log_));
    section(saving_lines(log_, holdings_));
    if (!log_.timed) {
      line("");
      line("Costs are in ops. Times, history, and who asked for what need a timeline (" +
           spelled("ScopeOptions::timeline", "timeline=True") + ").");
    }
    return absl::StrJoin(lines_, "\n") + "\n";
  }

 private:
  // By reference: GCC 12 at -O3 warns of an overlong copy inside the move of a short literal (its bug 105651).
  void line(const std::string& text) { lines_.push_back(text); }

  void section(const std::vector<std::string>& lines) {
    if (!lines.empty()) {
      line("");
      lines_.insert(lines_.end(), lines.begin(), lines.end());
    }
  }

  // Says what each policy decided, so that a policy whose ops or names never occur can be told from one that decides.
  // Only a timeline knows which policy decided.
  void explain_decisions() {
    std::vector<std::map<CheckpointPolicy, int64_t>> counts(log_.scopes.size());
    for (const TraceLog::Op& op : log_.ops) {
      if (op.is_node && op.scope != TraceLog::kNone) {
        ++counts[op.scope][op.decision];
      }
    }
    if (counts.empty()) {
      return;
    }
    line("");
    line("Decided, in ops that compute something:");
    for (size_t i = 0; i < std::min(counts.size(), kDecidingLines); ++i) {
      std::vector<std::string> parts;
      for (const auto& [decision, count] : counts[i]) {
        parts.push_back(absl::StrCat(count, " ", to_string(decision)));
      }
      line(
          absl::StrCat("  ", scope_name(log_.scopes[i]), ": ", parts.empty() ? "nothing" : absl::StrJoin(parts, ", ")));
    }
    if (counts.size() > kDecidingLines) {
      line(absl::StrCat("  ... and ", counts.size() - kDecidingLines, " more scopes"));
    }
  }

  // Says how many results were compared, so that a run in which none was is not taken for one that was checked.
  void explain_verified() {
    if (log_.verifies) {
      line("");
      line(log_.stats.verified_results > 0
               ? absl::StrCat("Verify mode has compared ", count_text(log_.stats.verified_results, "replayed result"),
                              " with forward's.")
               : "Verify mode has compared nothing so far: no result that forward made was replayed.");
    }
  }

  const TraceLog& log_;
  const Holdings holdings_;
  std::vector<std::string> lines_;
};

}  // namespace

std::string explain(const TraceLog& log) {
  return Explanation(log).text();
}

}  // namespace ac2::internal
