// A trace told in at most about 60 lines of text. The lines say what is held and why, what was replayed and for whom,
// and what recomputing one more value would save. ac2::explain() returns it.
//
// Threads: any; a TraceLog is a copy that nothing else writes to.
#pragma once

#include <string>

#include "ac2/internal/observe/trace_log.h"

namespace ac2::internal {

std::string explain(const TraceLog& log);

}  // namespace ac2::internal
