// The lines of explain() about what is held: the largest values, why each is held and for whom; and tensors that are
// saved whole.
//
//   const Holdings holdings(log);
//   for (const std::string& line : held_lines(log, holdings)) …
//
// Threads: any.
#pragma once

#include <string>
#include <vector>

#include "ac2/internal/observe/trace_log.h"
#include "ac2/internal/report/holdings.h"

namespace ac2::internal {

// At most 14 lines.
std::vector<std::string> held_lines(const TraceLog& log, const Holdings& holdings);
// A line for each kind of tensor, after one that says what they are. Empty if there are none.
std::vector<std::string> whole_lines(const TraceLog& log, const Holdings& holdings);

}  // namespace ac2::internal
