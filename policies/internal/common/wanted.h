// Policies that were given names or operators to look for, and found nothing of them by the end of the first backward
// after their regions. A warning says so once, with what there was.
//
//   return watch_names(policy, "save_only_these_names", names);
//   return watch_ops(policy, "save_ops", ops, Complain::kIfNoneCame);
//
// Looked for are names that name_tensor() gives and operators that run in a region of the policy's. first_backward.h says
// when they are told of.
//
// Threads: a policy may be entered on many at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ac2/policy.h"

namespace ac2::policies::internal {

enum class Complain : uint8_t {
  kOfEach,      // of each entry that nothing had
  kIfNoneCame,  // if no entry had anything: lists of operators have names that only other machines run
};

// `policy`, which decides by the names. `policy` and its regions behave as before.
Policy watch_names(Policy policy, std::string caller, const std::vector<std::string>& names);
// `policy`, which decides by operators in the form of OpNameSet.
Policy watch_ops(Policy policy, std::string caller, const std::vector<std::string>& ops, Complain complain);

}  // namespace ac2::policies::internal
