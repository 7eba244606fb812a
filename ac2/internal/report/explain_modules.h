// The lines of explain() that go by module: what each holds and what it computes again, and, of a region whose budget
// has dropped something, a policy that keeps what the budget kept.
//
//   for (const std::string& line : module_lines(log, holdings)) …
//   for (const std::string& line : keeping_policy_lines(log)) …
//
// Modules are those whose parameters ops take (TraceLog::Op::where). Modules whose paths differ in numbers alone are
// one group, "layers.*.mlp". An op that takes no parameter counts to the group of the block around the last op that
// took one, because nothing tells where in the block it stands. Empty where no names are known.
//
// Threads: any.
#pragma once

#include <string>
#include <vector>

#include "ac2/internal/observe/trace_log.h"
#include "ac2/internal/report/holdings.h"

namespace ac2::internal {

// At most 10 lines.
std::vector<std::string> module_lines(const TraceLog& log, const Holdings& holdings);

// Needs a timeline, which alone knows what was dropped. At most 16 lines. The policy is policies::by_module(), in the
// language in which the program reads it. Of the results of one op in one group it saves all or none, whichever keeps
// more of the bytes as the budget did; the last line says how much of what the budget kept it keeps, and how much more.
std::vector<std::string> keeping_policy_lines(const TraceLog& log);

}  // namespace ac2::internal
