// The policies that the examples and benchmarks know by name.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ac2/policy.h"

namespace gpt {

// "none", "recompute_all", "save_compute_intensive", "must_save_all": the order of every table.
const std::vector<std::string>& policy_names();

// Null for "none": no region at all. Throws c10::Error that lists the names if there is no such policy.
std::optional<ac2::Policy> policy_by_name(const std::string& name);

}  // namespace gpt
