#include "ac2/internal/report/explain_budget.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "ac2/internal/report/budget_effects.h"
#include "ac2/internal/report/explain_text.h"
#include "ac2/internal/report/units.h"

namespace ac2::internal {

namespace {

using BoundKind = TraceLog::Bound::Kind;

constexpr size_t kEffectLines = 9;

std::string bound_sentence(const TraceLog::Bound& bound) {
  switch (bound.kind) {
    case BoundKind::NONE:
      break;
    case BoundKind::STRICT:
    case BoundKind::SOFT:
      return absl::StrCat("Memory budget: ", bound_name(bound), ".");
    case BoundKind::WITHOUT_NUMBER:
      return bound.bytes == TraceLog::kNone ? "Memory budget: whatever fits; memory has not run out so far."
                                            : absl::StrCat("Memory budget: whatever fits, which is ",
                                                           bytes_text(bound.bytes), " as far as it has learned.");
    case BoundKind::PEAK:
      return absl::StrCat("Memory budget: ", bound_name(bound),
                          " of all tensors of a device together, whoever holds them: of the CPU, and of each "
                          "accelerator that the budget bounds.");
  }
  return "";
}

void add_counted(c10::ArrayRef<TraceLog> logs, const HeldOverTime& held, std::vector<std::string>& sentences) {
  const bool timed = std::any_of(logs.begin(), logs.end(), [](const TraceLog& log) { return log.timed; });
  const bool is_peak = logs.back().bound.kind == BoundKind::PEAK;
  if (!timed && is_peak) {
    return;
  }
  if (!timed) {
    int64_t now = 0, shared = 0;
    for (const TraceLog& log : logs) {
      now += log.stats.saved_bytes + log.stats.recomputed_bytes;
      shared += log.shared_bytes;
    }
    sentences.push_back(absl::StrCat(bytes_text(now - shared), " of what is held now count; ", bytes_text(shared),
                                     " do not: ", kNotCounted, "."));
    return;
  }
  if (is_peak) {
    const bool several = logs.size() > 1;
    sentences.push_back(absl::StrCat("At most ", bytes_text(held.most_allocated), " were allocated, as far as ",
                                     several ? "these regions" : "this region", " saw: what ",
                                     several ? "they hold" : "it holds",
                                     ", what the program holds itself, gradients, and the memory of kernels."));
    return;
  }
  sentences.push_back(absl::StrCat("At most ", bytes_text(held.most_counted), " counted, at ",
                                   time_text(held.most_counted_at - held.begin), "."));
  sentences.push_back(absl::StrCat("When most was held, ", bytes_text(held.most_held), " at ",
                                   time_text(held.most_held_at - held.begin), ", ", bytes_text(held.shared_then),
                                   " of it did not count: ", kNotCounted, "."));
}

std::string effect_text(const TraceLog& log, const Effect& effect) {
  std::string text =
      absl::StrCat("  ", pad(bytes_text(effect.bytes), 10), "  ", effect.op.empty() ? kOutside : effect.op, " x",
                   effect.values, effect.where.empty() ? "" : absl::StrCat(" ", effect.where), ": ", kind_text(effect));
  if (effect.kind == Effect::Kind::PACKED) {
    absl::StrAppend(&text, " as ", bytes_text(effect.packed_bytes));
  }
  absl::StrAppend(&text, effect.first == effect.last ? absl::StrCat(" at ", time_text(effect.first - log.begin))
                                                     : absl::StrCat(" from ", time_text(effect.first - log.begin),
                                                                    " to ", time_text(effect.last - log.begin)));
  if (effect.kind == Effect::Kind::DROPPED) {
    return absl::StrCat(text, "; computed again ", count_text(effect.times, "time"), ", ", time_text(effect.time));
  }
  return absl::StrCat(text, "; asked for ", count_text(effect.times, "time"), ", waited ", time_text(effect.time));
}

}  // namespace

std::string bound_name(const TraceLog::Bound& bound) {
  switch (bound.kind) {
    case BoundKind::NONE:
      break;
    case BoundKind::STRICT:
      return bytes_text(bound.bytes);
    case BoundKind::SOFT:
      return absl::StrCat(bytes_text(bound.bytes), ", soft");
    case BoundKind::WITHOUT_NUMBER:
      return "whatever fits";
    case BoundKind::PEAK:
      return absl::StrCat("a peak of ", bytes_text(bound.bytes));
  }
  return "";
}

std::vector<std::string> budget_sentences(c10::ArrayRef<TraceLog> logs, const HeldOverTime& held) {
  if (!held.shares_bound) {
    const bool is_bounded =
        std::any_of(logs.begin(), logs.end(), [](const TraceLog& log) { return log.bound.kind != BoundKind::NONE; });
    return is_bounded ? std::vector<std::string>{"The regions have different memory budgets, or some have none: their "
                                                 "sum is not bounded. Ask of one region to see it against its budget."}
                      : std::vector<std::string>{};
  }
  std::vector<std::string> sentences{bound_sentence(logs.back().bound)};
  add_counted(logs, held, sentences);
  return sentences;
}

std::vector<std::string> budget_lines(const TraceLog& log) {
  std::vector<std::string> lines;
  for (const std::string& sentence : budget_sentences(log, held_over_time(log))) {
    lines.push_back(lines.empty() ? sentence : "  " + sentence);
  }
  const std::vector<Effect> effects = log.timed ? budget_effects(log) : std::vector<Effect>();
  if (!effects.empty()) {
    lines.emplace_back("Dropped or packed for a budget, offloaded, or packed by a policy, and what that cost:");
    for (size_t i = 0; i < std::min(effects.size(), kEffectLines); ++i) {
      lines.push_back(effect_text(log, effects[i]));
    }
    if (effects.size() > kEffectLines) {
      lines.push_back(absl::StrCat("  ... and ", effects.size() - kEffectLines, " more kinds"));
    }
  }
  return lines;
}

}  // namespace ac2::internal
