// The policies without parameters by their names, for flags and configuration files.
//
//   const ac2::Policy policy = ac2::policies::policy_by_name(flags.policy);  // "speed"
//
// A name means the same wherever a policy is taken: ac2::PolicyScope scope("speed") opens a scope with that policy too.
//
// Threads: any.
#pragma once

#include <string>
#include <vector>

#include "ac2/policy.h"

namespace ac2::policies {

// The names in the order in which an error or a help text should list them.
const std::vector<std::string>& policy_names();

// The same as Policy(name). Throws c10::Error, "Unknown policy", which lists the names, if there is no such policy.
Policy policy_by_name(const std::string& name);

}  // namespace ac2::policies
