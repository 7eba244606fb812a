// Decisions for a SaveWithHooks whose pack was never called by the end of the first backward. A warning says so once,
// with the ops for which it was decided.
//
//   return watch_hooks(policy, "per_op_override");
//
// A SaveWithHooks that several policies decide for is told of if none of them came to a pack. A function may make a new
// one for each op, of which some come to nothing. It is told of if none of its came to a pack.
//
// Threads: a policy may be entered on many at once.
#pragma once

#include <cstdint>
#include <string>

#include "ac2/policy.h"

namespace ac2::policies::internal {

enum class HooksOf : uint8_t { kTable, kFunction };

// `policy`. It and its regions behave as before.
Policy watch_hooks(Policy policy, std::string caller, HooksOf of = HooksOf::kTable);

}  // namespace ac2::policies::internal
