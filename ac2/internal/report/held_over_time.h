// The bytes that regions hold over time, on one time line, in sums: the most at once, by op, by policy, and of that
// what counts against a budget.
//
//   const HeldOverTime held = held_over_time(logs);
//   … held.most_counted …
//
// Threads: any.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ac2/internal/observe/trace_log.h"

namespace ac2::internal {

// Times are nanoseconds of the logs' clock. All but `groups` and `shares_bound` is of logs with a timeline.
struct HeldOverTime {
  int64_t begin = 0;  // of the first timeline
  int64_t end = 0;    // of the last op, replay, backward or change
  // Of all regions together, with replayed results.
  int64_t most = 0;
  int64_t most_at = 0;
  int64_t most_saved = 0;  // without replayed results

  // The values of the ops of one name. Without a timeline, `most` is what is held of them now.
  struct Group {
    std::string op;  // "aten::gelu"; empty: from outside the region
    int64_t most = 0;
  };
  std::vector<Group> groups;  // the most bytes first

  // Regions one after the other whose outermost scopes have the same policy.
  struct Part {
    std::string policy;  // its name; empty if it has none
    int64_t begin = 0;
    int64_t end = 0;
    int64_t most = 0;
    int64_t most_at = 0;
    int64_t backward = TraceLog::kNone;  // when the first one began
  };
  std::vector<Part> parts;

  // Whether all regions have one budget, which they share. Of nothing else do the following tell.
  bool shares_bound = false;
  // All of these once room was made for what an op has made: at once within the limit, else before more bytes come to
  // the same region.
  // The most of what counts against the budget, and when.
  int64_t most_counted = 0;
  int64_t most_counted_at = 0;
  // When most was held, counted or not.
  int64_t most_held = 0;
  int64_t most_held_at = 0;
  int64_t shared_then = 0;     // the part of that which does not count
  int64_t most_allocated = 0;  // as far as the regions have seen, where that is bounded
  // By log and event: the bytes of all regions that count after it. What has come counts once room was made for it, and
  // what has gone counts no more at once.
  std::vector<std::vector<int64_t>> counted;
};

HeldOverTime held_over_time(c10::ArrayRef<TraceLog> logs);

}  // namespace ac2::internal
