// ModuleGroups say what a region holds and computes again, by module.
//
// Modules are those whose parameters ops take (TraceLog::Op::where). Modules whose paths differ in numbers alone are
// one group, "layers.*.mlp". An op that takes no parameter counts to the group of the block around the last op that
// took one, because nothing tells where in the block it stands.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ac2/internal/observe/trace_log.h"
#include "ac2/internal/report/holdings.h"

namespace ac2::internal {

struct ModuleGroup {
  std::string pattern;  // as by_module() takes it; "" is the model itself
  int64_t modules = 0;  // whose parameters ops took
  int64_t ops = 0;
  int64_t held_bytes = 0;  // of their results, at the moment of the Holdings
  int64_t replays = 0;
};

// The one that holds most comes first. Empty where no names are known.
std::vector<ModuleGroup> module_groups(const TraceLog& log, const Holdings& holdings);

// The pattern, or words for the model itself.
std::string module_group_name(const ModuleGroup& group);

// The pattern of the group of an op whose `where` is known.
std::string module_group_of(const TraceLog::Op& op);

}  // namespace ac2::internal
