// A trace in Chrome's trace event format, which Perfetto reads too. ac2::to_chrome_trace() returns it. Times and
// durations in it are microseconds if the region had a timeline, and numbers of ops otherwise.
#pragma once

#include <string>

#include "ac2/internal/observe/trace_log.h"

namespace ac2::internal {

std::string to_chrome_trace(const TraceLog& log);

}  // namespace ac2::internal
