// The sections of explain() about a memory budget, and about what was dropped, offloaded or packed, when and at what
// cost. The page of write_report() and the summary have the same sentences of a budget.
//
// Threads: any.
#pragma once

#include <c10/util/ArrayRef.h>

#include <string>
#include <vector>

#include "ac2/internal/observe/trace_log.h"
#include "ac2/internal/report/held_over_time.h"

namespace ac2::internal {

// "8.00 MiB", "8.00 MiB, soft", "a peak of 8.00 MiB", "whatever fits"
std::string bound_name(const TraceLog::Bound& bound);

// Which budget the regions have, what counted and what did not. Empty if none has one. Without a timeline what counts
// now. Where the regions have different budgets one sentence says so. `held` is held_over_time() of the logs.
std::vector<std::string> budget_sentences(c10::ArrayRef<TraceLog> logs, const HeldOverTime& held);

std::vector<std::string> budget_lines(const TraceLog& log);

}  // namespace ac2::internal
