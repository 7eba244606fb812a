// A trace in some forty lines of text: what ac2::explain() returns.
#pragma once

#include <string>

#include "ac2/internal/observe/trace_log.h"

namespace ac2::internal {

std::string explain(const TraceLog& log);

}  // namespace ac2::internal
