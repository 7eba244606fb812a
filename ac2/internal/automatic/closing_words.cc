#include "ac2/internal/automatic/closing_words.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "ac2/internal/report/units.h"

namespace ac2::internal {

namespace {

bool has_number(const ClosingFigures& figures) {
  return !figures.budget.empty() && figures.budget != "auto";
}

bool is_for_peak(const ClosingFigures& figures) {
  return absl::StartsWith(figures.budget, "peak:");
}

// "8GiB" of "soft:8GiB", and "1000 bytes" of "1000".
std::string number_of(const ClosingFigures& figures) {
  const std::string number = figures.budget.substr(figures.budget.find(':') + 1);  // npos + 1 is 0
  return absl::EndsWith(number, "B") ? number : absl::StrCat(number, " bytes");
}

std::string at_most(const ClosingFigures& figures) {
  return figures.peak_bytes > 0
             ? absl::StrCat(" (at most ", bytes_text(figures.peak_bytes), ", with parameters and inputs)")
             : "";
}

std::string nothing_needed(const ClosingFigures& figures) {
  if (figures.recorded_ops == 0) {
    return "nothing was needed: no op was recorded.";
  }
  if (figures.budget.empty()) {
    return absl::StrCat("nothing was computed again: the policy \"", figures.policy,
                        "\" saved all that backward needed", at_most(figures), ".");
  }
  const std::string who = is_for_peak(figures)  ? absl::StrCat("a peak of ", number_of(figures), " was never reached")
                          : has_number(figures) ? absl::StrCat("the memory budget of ", number_of(figures),
                                                               " had room for all that backward needed")
                                                : "there was memory for all that backward needed";
  return absl::StrCat("nothing was needed: ", who, at_most(figures), ".");
}

// The reason for which ac2 dropped something.
std::string reason(const ClosingFigures& figures) {
  if (figures.shortages > 0) {
    return is_for_peak(figures) ? absl::StrCat("the peak of ", number_of(figures), " was reached ",
                                               count_text(figures.shortages, "time"))
                                : absl::StrCat("memory ran out ", count_text(figures.shortages, "time"));
  }
  if (is_for_peak(figures)) {
    return absl::StrCat("a peak of ", number_of(figures), " left no room for all that backward needed");
  }
  if (has_number(figures)) {
    return absl::StrCat("the memory budget of ", number_of(figures), " had no room for all that backward needed");
  }
  if (!figures.policy.empty()) {
    return absl::StrCat("the policy \"", figures.policy, "\" did not save all that backward needed");
  }
  return "not all that backward needed was held";
}

// "3 values were dropped"
std::string happened(int64_t count, const char* thing, const char* what) {
  return absl::StrCat(count_text(count, thing), count == 1 ? " was " : " were ", what);
}

std::string done(const ClosingFigures& figures) {
  std::vector<std::string> before;
  if (figures.dropped_values > 0) {
    before.push_back(happened(figures.dropped_values, "value", "dropped"));
  }
  if (figures.packed_values > 0) {
    before.push_back(happened(figures.packed_values, "value", "packed into fewer bytes"));
  }
  return absl::StrCat(absl::StrJoin(before, ", "), before.empty() ? "" : " and ",
                      happened(figures.recomputed_ops, "op", "computed again in backward"));
}

void add_bytes(const ClosingFigures& figures, std::vector<std::string>& lines) {
  if (figures.dropped_bytes > 0) {
    lines.push_back(absl::StrCat("  What was dropped had ", bytes_text(figures.dropped_bytes),
                                 ", and what was computed again ", bytes_text(figures.recomputed_bytes), "."));
  } else if (figures.recomputed_bytes > 0) {
    lines.push_back(absl::StrCat("  What was computed again had ", bytes_text(figures.recomputed_bytes), "."));
  }
  if (figures.peak_bytes > 0) {
    lines.push_back(absl::StrCat("  A region held ", bytes_text(figures.peak_bytes), " at most."));
  }
}

std::string seconds(int64_t nanoseconds) {
  return absl::StrFormat("%.2f s", static_cast<double>(nanoseconds) / 1e9);
}

// A share of a time that several threads had would be none of a step's.
void add_time(const ClosingFigures& figures, std::vector<std::string>& lines) {
  if (figures.spent_nanoseconds <= 0 || figures.spent_of_nanoseconds <= 0) {
    return;
  }
  const double share =
      static_cast<double>(figures.spent_nanoseconds) / static_cast<double>(figures.spent_of_nanoseconds);
  lines.push_back(
      absl::StrCat(figures.dropped_values > 0 ? "  Dropping and computing again took " : "  Computing again took ",
                   seconds(figures.spent_nanoseconds),
                   figures.threads > 1 ? absl::StrCat(" on ", figures.threads, " threads together, in the ")
                                       : absl::StrFormat(", %.1f %% of the ", 100 * std::min(share, 1.0)),
                   seconds(figures.spent_of_nanoseconds), " from the first of it to the end",
                   figures.has_queued ? ", by the host's clock; an accelerator's time is not in it." : "."));
}

void add_over(const ClosingFigures& figures, std::vector<std::string>& lines) {
  if (figures.times_over > 0) {
    lines.push_back(absl::StrCat(
        "  More than ", number_of(figures), " was taken ", count_text(figures.times_over, "time"),
        figures.most_bytes_over > 0 ? absl::StrCat(", by ", bytes_text(figures.most_bytes_over), " at most") : "",
        ": nothing was left to drop."));
  }
}

void add_held(const ClosingFigures& figures, std::vector<std::string>& lines) {
  if (figures.held.empty()) {
    return;
  }
  lines.push_back("  Most was held of:");
  for (size_t i = 0; i < std::min(figures.held.size(), ClosingFigures::kNamedPlaces); ++i) {
    lines.push_back(absl::StrCat("    ", pad(bytes_text(figures.held[i].bytes), 10), "  ", figures.held[i].where));
  }
}

std::string region_for_each(const ClosingFigures& figures) {
  const bool python = figures.language == ClosingFigures::Language::kPython;
  if (figures.repeated.empty()) {
    return python ? "with ac2.PolicyScope(\"save_compute_intensive\"):   # around the call of each layer"
                  : "ac2::PolicyScope scope(\"save_compute_intensive\");   // around the call of each layer";
  }
  return python ? absl::StrCat("ac2.apply_checkpointing(model, modules=\"", figures.repeated,
                               "\", policy=\"save_compute_intensive\")")
                : absl::StrCat("ac2::apply_checkpointing(model, {.modules = {\"", figures.repeated,
                               "\"}, .policy = \"save_compute_intensive\"});");
}

void add_reasons(const ClosingFigures& figures, std::vector<std::string>& lines) {
  for (const std::string& reason : figures.reasons) {
    lines.push_back(absl::StrCat("  ", reason));
  }
}

// Empty for a budget without a number: a number as large as what it has learned runs out first, because malloc keeps
// what was freed in pieces until memory has run out once.
std::string larger_budget(const ClosingFigures& figures) {
  if (!has_number(figures) && !figures.budget.empty()) {
    return "";
  }
  return figures.language == ClosingFigures::Language::kPython
             ? "--memory-budget auto   # or ac2.PolicyScope(memory_budget=ac2.whatever_fits()): takes what memory "
               "there is"
             : "--memory-budget auto   // or {.memory_budget = ac2::whatever_fits()}: takes what memory there is";
}

void add_advice(const ClosingFigures& figures, std::vector<std::string>& lines) {
  std::vector<std::string> advice;
  if (!figures.budget.empty()) {
    advice.push_back(region_for_each(figures));
  }
  if (std::string budget = larger_budget(figures); !budget.empty()) {
    advice.push_back(std::move(budget));
  }
  lines.push_back(advice.size() == 1 ? "  This may take less time:" : "  Either of these may take less time:");
  for (const std::string& line : advice) {
    lines.push_back(absl::StrCat("    ", line));
  }
}

std::string end_text(const ClosingFigures& figures) {
  if (figures.end == ClosingFigures::End::kMemoryRanOut) {
    return absl::StrCat("the program ended because memory ran out",
                        figures.budget == "auto" ? " when nothing more could be dropped." : ".");
  }
  return has_number(figures) ? absl::StrCat("the program ended because the memory budget of ", number_of(figures),
                                            " could not be met. Its error says which would have done.")
                             : "the program ended because a memory budget of its own could not be met.";
}

bool is_strict(const ClosingFigures& figures) {
  return has_number(figures) && !absl::StrContains(figures.budget, ':');
}

}  // namespace

void ClosingFigures::add(const ClosingFigures& other) {
  recorded_ops += other.recorded_ops;
  shortages += other.shortages;
  dropped_values += other.dropped_values;
  dropped_bytes += other.dropped_bytes;
  packed_values += other.packed_values;
  recomputed_ops += other.recomputed_ops;
  recomputed_bytes += other.recomputed_bytes;
  peak_bytes = std::max(peak_bytes, other.peak_bytes);
  times_over += other.times_over;
  most_bytes_over = std::max(most_bytes_over, other.most_bytes_over);
  spent_nanoseconds += other.spent_nanoseconds;
  spent_since = std::min(spent_since, other.spent_since);
  threads += other.threads;
  has_queued |= other.has_queued;
}

bool was_needed(const ClosingFigures& figures) {
  return figures.end != ClosingFigures::End::kByItself || figures.shortages > 0 || figures.dropped_values > 0 ||
         figures.packed_values > 0 || figures.recomputed_ops > 0 || figures.times_over > 0;
}

std::string closing_words(const ClosingFigures& figures) {
  const std::string ac2 = figures.who.empty() ? "ac2: " : absl::StrCat("ac2, ", figures.who, ": ");
  std::vector<std::string> lines;
  if (figures.end != ClosingFigures::End::kByItself) {
    lines.push_back(absl::StrCat(ac2, end_text(figures)));
  }
  if (!was_needed(figures)) {
    lines.push_back(absl::StrCat(ac2, nothing_needed(figures)));
  } else if (figures.dropped_values > 0 || figures.packed_values > 0 || figures.recomputed_ops > 0) {
    lines.push_back(absl::StrCat(ac2, reason(figures), ": ", done(figures), "."));
    add_bytes(figures, lines);
    add_time(figures, lines);
  } else if (lines.empty()) {
    lines.push_back(absl::StrCat(ac2, reason(figures), ": nothing was dropped."));
  }
  add_over(figures, lines);
  if (was_needed(figures)) {
    add_held(figures, lines);
    add_reasons(figures, lines);
    if (figures.end == ClosingFigures::End::kByItself) {
      add_advice(figures, lines);
    } else if (figures.end == ClosingFigures::End::kBudgetRefused && is_strict(figures)) {
      lines.push_back(absl::StrCat(
          "  This goes over the number where there is no other way:\n    --memory-budget soft:", figures.budget));
    }
  }
  if (!figures.report.empty()) {
    lines.push_back(absl::StrCat("  The page is ", figures.report, "."));
  }
  return absl::StrCat(absl::StrJoin(lines, "\n"), "\n");
}

}  // namespace ac2::internal
