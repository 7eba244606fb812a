// A trace in the trace event format of Chrome, which Perfetto reads too: what ac2::to_chrome_trace() returns. Times and
// durations there are microseconds.
#pragma once

#include <string>

#include "ac2/internal/observe/trace_log.h"

namespace ac2::internal {

std::string to_chrome_trace(const TraceLog& log);

}  // namespace ac2::internal
