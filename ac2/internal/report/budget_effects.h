// The effects of a memory budget, an offload or a form of a policy's in a region, in numbers: the bytes that counted,
// and what was dropped, moved and packed, when, and at what cost.
//
//   const BudgetEffects effects = budget_effects(log);
//   … effects.most_counted …
//   for (const Effect& effect : effects.effects) …
//
// Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ac2/internal/observe/trace_log.h"

namespace ac2::internal {

// The values of the ops of one name and place that went the same way.
struct Effect {
  enum class Kind : uint8_t { DROPPED, OFFLOADED, PACKED };
  Kind kind = Kind::DROPPED;
  std::string op;     // "aten::gelu"; empty for values from outside the region
  std::string where;  // as TraceLog::Op::where
  std::string form;   // of PACKED: its name; empty for functions of the program's
  int64_t values = 0;
  int64_t bytes = 0;
  int64_t packed_bytes = 0;  // the bytes held of them instead
  int64_t first = 0;         // when, in nanoseconds of the log's clock
  int64_t last = 0;
  // Of what was dropped: how often its ops ran again, and for how long. Of the others: how often backward asked for
  // them, and for how long it waited.
  int64_t times = 0;
  int64_t time = 0;
};

struct BudgetEffects {
  // All of these once room was made for what an op has made.
  // The most of what counts against a budget, and when.
  int64_t most_counted = 0;
  int64_t most_counted_at = 0;
  // When most was held, counted or not.
  int64_t most_held = 0;
  int64_t most_held_at = 0;
  int64_t shared_then = 0;      // the part of that which does not count
  int64_t most_allocated = 0;   // as far as the region has seen, where that is bounded
  std::vector<Effect> effects;  // the most bytes first
};

// Of a log with a timeline.
BudgetEffects budget_effects(const TraceLog& log);

// "dropped", "packed", "packed (one bit)".
std::string kind_text(const Effect& effect);

}  // namespace ac2::internal
