// The lines of explain() about a memory budget. The lines say what counted against it, what did not, and what was
// dropped, offloaded and packed, when, and at what cost.
//
//   for (const std::string& line : budget_lines(log)) …
//
// Empty if there is nothing to say. At most 17 lines.
//
// Threads: any.
#pragma once

#include <string>
#include <vector>

#include "ac2/internal/observe/trace_log.h"

namespace ac2::internal {

std::vector<std::string> budget_lines(const TraceLog& log);

}  // namespace ac2::internal
