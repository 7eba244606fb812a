// The sums that stand above the page of write_report().
//
// Threads: any.
#pragma once

#include <c10/util/ArrayRef.h>

#include <string>
#include <vector>

#include "ac2/internal/observe/trace_log.h"
#include "ac2/internal/report/held_over_time.h"

namespace ac2::internal {

struct ReportTile {
  std::string label;
  std::string value;
  std::string detail;  // may be empty
};

// `held` is held_over_time() of the logs.
std::vector<ReportTile> report_tiles(c10::ArrayRef<TraceLog> logs, const HeldOverTime& held);

// "3 regions, 120 ops, 12.34 ms from the first op to the last release"
std::string report_subtitle(c10::ArrayRef<TraceLog> logs, const HeldOverTime& held);

}  // namespace ac2::internal
