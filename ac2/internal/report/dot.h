// A trace as a Graphviz digraph: a box for each op, an edge for each value that one takes from another. ac2::to_dot()
// returns it.
#pragma once

#include <string>

#include "ac2/internal/observe/trace_log.h"

namespace ac2::internal {

std::string to_dot(const TraceLog& log);

}  // namespace ac2::internal
