// The ops of regions in sums: of each op what is or was held of its results, its replays and their time; and of the ops
// that have a name, a decision and a decider in common, the same together.
//
// Threads: any.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ac2/internal/observe/trace_log.h"

namespace ac2::internal {

// Times are nanoseconds.
struct OpSum {
  int64_t bytes = 0;    // of its results
  int64_t saved = 0;    // of these, what was held for backward last
  int64_t replays = 0;  // how often it was replayed
  int64_t replay_time = 0;
  int64_t evictions = 0;  // how often a budget dropped one of its results
};

// By op of the log.
std::vector<OpSum> op_sums(const TraceLog& log);

struct OpGroup {
  std::string name;      // "aten::gelu"; empty: values from outside the regions
  std::string decision;  // "MUST_SAVE", or a sentence where no policy decides; empty for a view
  std::string by;        // whose decision it is; empty where nobody decides or nobody knows
  int64_t calls = 0;
  int64_t forward_time = 0;
  OpSum sum;
};

struct OpGroups {
  std::vector<OpGroup> groups;                // in the order in which they first ran; what is from outside is last
  std::vector<std::vector<size_t>> group_of;  // by log and op
};

OpGroups op_groups(c10::ArrayRef<TraceLog> logs);

// Of all ops.
int64_t forward_time(c10::ArrayRef<TraceLog> logs);
int64_t replay_time(c10::ArrayRef<TraceLog> logs);

}  // namespace ac2::internal
