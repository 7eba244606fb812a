// The lines of explain() about replays. The lines say what was computed again and for whom, which replays reach far
// back, and what computing one more value again would save.
//
//   for (const std::string& line : replay_lines(log)) …
//
// Each is empty if there is nothing to say. Threads: any.
#pragma once

#include <string>
#include <vector>

#include "ac2/internal/observe/trace_log.h"
#include "ac2/internal/report/holdings.h"

namespace ac2::internal {

// At most 11 lines.
std::vector<std::string> replay_lines(const TraceLog& log);
// At most 7 lines.
std::vector<std::string> long_replay_lines(const TraceLog& log);
// At most 10 lines.
std::vector<std::string> saving_lines(const TraceLog& log, const Holdings& holdings);

}  // namespace ac2::internal
