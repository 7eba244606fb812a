// The values for which a backward replays, or has replayed, many ops.
//
//   for (const LongReplay& replay : long_replays(log)) …
//
// A replay reaches back to the nearest values that are there. Where those are far away, saving a value on the way, or
// ending the region earlier, may be worth its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ac2/internal/observe/trace_log.h"

namespace ac2::internal {

struct LongReplay {
  int64_t value = 0;  // in the log; the value that autograd wants
  int64_t ops = 0;    // that were replayed for it; if it is still wanted, that a backward will replay
  int64_t first = 0;  // of these, the op that ran first; in the log
};

// The replays of `least` ops and more; the longest comes first. Each op is counted once, for the oldest value that
// needs it.
std::vector<LongReplay> long_replays(const TraceLog& log, int64_t least = 32);

}  // namespace ac2::internal
