#include "ac2/internal/report/explain_budget.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "ac2/internal/report/budget_effects.h"
#include "ac2/internal/report/units.h"

namespace ac2::internal {

namespace {

using BoundKind = TraceLog::Bound::Kind;

constexpr size_t kEffectLines = 9;

std::string bound_text(const TraceLog::Bound& bound) {
  switch (bound.kind) {
    case BoundKind::NONE:
      break;
    case BoundKind::STRICT:
      return absl::StrCat("Memory budget: ", bytes_text(bound.bytes), ".");
    case BoundKind::SOFT:
      return absl::StrCat("Memory budget: ", bytes_text(bound.bytes), ", soft.");
    case BoundKind::WITHOUT_NUMBER:
      return bound.bytes == TraceLog::kNone ? "Memory budget: whatever fits; memory has not run out so far."
                                            : absl::StrCat("Memory budget: whatever fits, which is ",
                                                           bytes_text(bound.bytes), " as far as it has learned.");
    case BoundKind::PEAK:
      return absl::StrCat("Memory budget: a peak of ", bytes_text(bound.bytes),
                          " of all tensors of a device together, whoever holds them: of the CPU, and of each "
                          "accelerator that the budget bounds.");
  }
  return "";
}

constexpr char kShared[] = "parameters, inputs, and what else the program or another region has too";

void add_counted(const TraceLog& log, const BudgetEffects& effects, std::vector<std::string>& lines) {
  if (!log.timed && log.bound.kind == BoundKind::PEAK) {
    return;
  }
  if (!log.timed) {
    const int64_t held = log.stats.saved_bytes + log.stats.recomputed_bytes;
    lines.push_back(absl::StrCat("  ", bytes_text(held - log.shared_bytes), " of what is held now count; ",
                                 bytes_text(log.shared_bytes), " do not: ", kShared, "."));
    return;
  }
  if (log.bound.kind == BoundKind::PEAK) {
    lines.push_back(absl::StrCat("  At most ", bytes_text(effects.most_allocated),
                                 " were allocated, as far as this region saw: what it holds, what the program holds "
                                 "itself, gradients, and the memory of kernels."));
    return;
  }
  lines.push_back(absl::StrCat("  At most ", bytes_text(effects.most_counted), " counted, at ",
                               time_text(effects.most_counted_at - log.begin), "."));
  lines.push_back(absl::StrCat("  When most was held, ", bytes_text(effects.most_held), " at ",
                               time_text(effects.most_held_at - log.begin), ", ", bytes_text(effects.shared_then),
                               " of it did not count: ", kShared, "."));
}

std::string effect_text(const TraceLog& log, const Effect& effect) {
  std::string text = absl::StrCat("  ", pad(bytes_text(effect.bytes), 10), "  ",
                                  effect.op.empty() ? "from outside the region" : effect.op, " x", effect.values,
                                  effect.where.empty() ? "" : absl::StrCat(" ", effect.where), ": ", kind_text(effect));
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

std::vector<std::string> budget_lines(const TraceLog& log) {
  const BudgetEffects effects = log.timed ? budget_effects(log) : BudgetEffects();
  std::vector<std::string> lines;
  if (log.bound.kind != BoundKind::NONE) {
    lines.push_back(bound_text(log.bound));
    add_counted(log, effects, lines);
  }
  if (!effects.effects.empty()) {
    lines.emplace_back("Dropped or packed for a budget, offloaded, or packed by a policy, and what that cost:");
    for (size_t i = 0; i < std::min(effects.effects.size(), kEffectLines); ++i) {
      lines.push_back(effect_text(log, effects.effects[i]));
    }
    if (effects.effects.size() > kEffectLines) {
      lines.push_back(absl::StrCat("  ... and ", effects.effects.size() - kEffectLines, " more kinds"));
    }
  }
  return lines;
}

}  // namespace ac2::internal
