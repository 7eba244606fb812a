// The parts of policies that decide by the names that a program gives to values.
//
// Threads: any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "ac2/policy.h"

namespace ac2::policies::internal {

using ValueNames = absl::flat_hash_set<std::string>;

// Throws c10::Error, which names `caller`, for an empty name.
std::shared_ptr<const ValueNames> value_names(const char* caller, const std::vector<std::string>& names);

bool has_one_of(const NamedTensor& tensor, const ValueNames& names);

// `unnamed` for every op, `listed` for values with one of the names. Called `caller`, and watched: names that nothing
// was given are told of.
Policy decide_listed(const char* caller, const std::vector<std::string>& names, CheckpointPolicy listed,
                     CheckpointPolicy unnamed);

}  // namespace ac2::policies::internal
