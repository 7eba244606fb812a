#include "ac2/internal/report/summary.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ac2/internal/report/explain_budget.h"
#include "ac2/internal/report/explain_text.h"
#include "ac2/internal/report/held_over_time.h"
#include "ac2/internal/report/units.h"

namespace ac2::internal {

namespace {

using BoundKind = TraceLog::Bound::Kind;

std::string budget_name(const TraceLog::Bound& bound) {
  return absl::StrCat("the memory budget of ", bound_name(bound));
}

// "at most 7.80 MiB counted towards the memory budget of 8.00 MiB"; empty without a budget.
std::string counted_text(const TraceLog& log) {
  if (log.bound.kind == BoundKind::NONE) {
    return "";
  }
  const HeldOverTime held = held_over_time(log);
  if (log.bound.kind == BoundKind::PEAK) {
    return log.timed ? absl::StrCat("at most ", bytes_text(held.most_allocated),
                                    " allocated, as far as the region saw, of ", budget_name(log.bound))
                     : "";
  }
  const int64_t now = log.stats.saved_bytes + log.stats.recomputed_bytes - log.shared_bytes;
  // The most that counted is known to a timeline alone.
  return absl::StrCat(log.timed ? "at most " : "now ", bytes_text(log.timed ? held.most_counted : now),
                      log.bound.kind == BoundKind::WITHOUT_NUMBER
                          ? " counted; the memory budget is whatever fits"
                          : absl::StrCat(" counted towards ", budget_name(log.bound)));
}

// Advice that follows from the counts of a region. The thresholds are where a change is worth a try, and promise
// nothing.
std::vector<std::string> advice(const TraceStats& stats) {
  std::vector<std::string> lines;
  if (stats.not_offloaded_bytes > 0) {
    lines.push_back(absl::StrCat(bytes_text(stats.not_offloaded_bytes),
                                 " stayed on the device, for which no pinned memory was left: allow more of it."));
  }
  if (stats.evicted_values > 0 && stats.recomputed_ops > 2 * stats.recorded_ops) {
    lines.emplace_back("Each op was replayed more than twice on an average: a larger memory_budget costs less time.");
  } else if (stats.evicted_values == 0 && stats.recorded_ops >= 100 && 2 * stats.recomputed_ops > stats.recorded_ops) {
    lines.emplace_back(
        "Most ops were replayed in one backward. If that peaks too high, give PolicyScope a memory_budget, or open a "
        "region for each block (apply_checkpointing). If it takes too long, take a policy that saves more, such as "
        "\"save_compute_intensive\", or \"must_save_all\" for this part.");
  }
  if (stats.peak_bytes > 0 && 2 * stats.copied_bytes > stats.peak_bytes) {
    lines.push_back(absl::StrCat(bytes_text(stats.copied_bytes),
                                 " were copied before ops wrote over them, or from memory of others: ops that write to "
                                 "new tensors need no copies."));
  }
  if (stats.recomputed_ops == 0 && stats.live_nodes == 0 && stats.peak_bytes > 0) {
    lines.emplace_back(
        "Nothing was replayed: the region saved all that backward asked for. To hold less, take another policy or a "
        "memory_budget.");
  }
  if (stats.recomputed_ops == 0 && stats.live_nodes > 0) {
    lines.emplace_back("Nothing was replayed so far: ask again after backward.");
  }
  return lines;
}

void add_advice(const std::vector<std::string>& advice, std::vector<std::string>& lines) {
  lines.emplace_back("What to change:");
  for (const std::string& line : advice) {
    lines.push_back("  " + line);
  }
  if (advice.empty()) {
    lines.emplace_back("  Nothing stands out.");
  }
}

}  // namespace

std::string summary(const TraceLog& log) {
  const TraceStats& stats = log.stats;
  std::vector<std::string> lines = {
      absl::StrCat("ac2: a region of ", count_text(stats.recorded_ops, "op"), "."),
      absl::StrCat("  held now      ", bytes_text(stats.saved_bytes + stats.recomputed_bytes)),
      absl::StrCat("  held at most  ", bytes_text(stats.peak_bytes), ", replayed results included",
                   log.bound.kind != BoundKind::NONE ? ", before room was made for what an op had made" : ""),
  };
  const std::string counted = counted_text(log);
  if (!counted.empty()) {
    lines.push_back(absl::StrCat("  budget        ", counted));
    if (log.bound.kind != BoundKind::PEAK) {
      lines.push_back(absl::StrCat("  not counted   ", kNotCounted));
    }
  }
  lines.push_back(absl::StrCat(
      "  replayed      ", count_text(stats.recomputed_ops, "op"), " replayed so far",
      stats.evicted_values > 0 ? absl::StrCat(", ", count_text(stats.evicted_values, "value"), " evicted") : "",
      stats.packed_values > 0 ? absl::StrCat(", ", count_text(stats.packed_values, "value"), " packed") : ""));
  add_advice(advice(stats), lines);
  return absl::StrJoin(lines, "\n");
}

std::string summary(const std::vector<NamedLog>& logs) {
  std::vector<std::string> lines = {absl::StrCat("ac2: ", logs.size(), " regions.")};
  std::vector<std::string> all;
  for (const auto& [name, log] : logs) {
    const TraceStats& stats = log.stats;
    const std::string counted = counted_text(log);
    lines.push_back(absl::StrCat("  ", name, ": ", count_text(stats.recorded_ops, "op"), ", ", stats.recomputed_ops,
                                 " replayed; held at most ", bytes_text(stats.peak_bytes), ", now ",
                                 bytes_text(stats.saved_bytes + stats.recomputed_bytes),
                                 counted.empty() ? "" : "; " + counted));
    const std::vector<std::string> advised = advice(stats);
    if (advised.empty()) {
      add_once(all, "Nothing stands out.");
    }
    for (const std::string& line : advised) {
      add_once(all, line);
    }
  }
  add_advice(all, lines);
  return absl::StrJoin(lines, "\n");
}

}  // namespace ac2::internal
