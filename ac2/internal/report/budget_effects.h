// The effects of a memory budget, an offload or a form of a policy's in regions, in numbers: what was dropped, moved
// and packed, when, and at what cost. The bytes that counted are in held_over_time.h.
//
//   for (const Effect& effect : budget_effects(logs)) …
//
// Threads: any.
#pragma once

#include <c10/util/ArrayRef.h>

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

// The most bytes first. Of logs with a timeline; those of one name, place and way in several logs are one effect.
std::vector<Effect> budget_effects(c10::ArrayRef<TraceLog> logs);

// "dropped", "packed", "packed (one bit)".
std::string kind_text(const Effect& effect);

}  // namespace ac2::internal
