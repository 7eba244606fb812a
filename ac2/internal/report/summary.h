// The first lines of a report: what regions hold and have held at most, how much of it counted against a memory budget,
// what was replayed, and what to change. Python's report() prints them.
//
// Threads: any.
#pragma once

#include <string>
#include <vector>

#include "ac2/internal/observe/trace_log.h"

namespace ac2::internal {

// Without a line feed at its end.
std::string summary(const TraceLog& log);

struct NamedLog {
  std::string name;  // of the region
  TraceLog log;
};
// One line for each region, and what to change in any of them.
std::string summary(const std::vector<NamedLog>& logs);

}  // namespace ac2::internal
