// Saves the result of every nth op, recomputes the n - 1 between: memory and replays in a fixed ratio, whatever the
// model.
//
//   ac2::PolicyScope scope(ac2::policies::every_nth(4));
//   ac2::PolicyScope scope(ac2::policies::every_nth(2, {"aten::mm", "aten::addmm"}));  // every second product
//
// Ops: MUST_SAVE for the nth, 2nth, … op of a region that is asked about (views are not), PREFER_RECOMPUTE for the
// others. With a list, of names and patterns as in policies/save_ops.h, only the listed ones are counted, and saved.
// Every region counts from its own beginning, nested ones too; so do several threads that share the policy.
// Throws c10::Error if n is not positive, if the list is empty, or for a name that no operator has. 1 saves everything,
// or all that is listed. Asked for every op.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ac2/policy.h"

namespace ac2::policies {

Policy every_nth(int64_t n);
Policy every_nth(int64_t n, const std::vector<std::string>& ops);

}  // namespace ac2::policies
