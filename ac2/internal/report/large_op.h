// An op that takes most of a step's memory by itself and could run a few rows at a time, named before memory runs out.
//
// Threads: any.
#pragma once

#include <string>
#include <vector>

#include "ac2/internal/observe/trace_log.h"

namespace ac2::internal {

// Two lines, or none. Of matrix products and convolutions, whose results are the largest of most models, the largest
// result is looked at with what surrounds it: the results of the ops that take it, and its gradient, which is as large.
// It is named if these take more than all else that the region held at most, and a MiB at least. The number of chunks
// is the one with which they would take no more than that; at most 64.
std::vector<std::string> large_op_lines(const TraceLog& log);

}  // namespace ac2::internal
