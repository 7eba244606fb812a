// A trace as a Graphviz digraph: what ac2::to_dot() returns.
#pragma once

#include <string>

#include "ac2/internal/observe/trace_log.h"

namespace ac2::internal {

std::string to_dot(const TraceLog& log);

}  // namespace ac2::internal
