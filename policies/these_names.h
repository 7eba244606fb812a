// Policies that decide by the names that ac2::name_tensor gave to values.
//
//   const ac2::Policy policy = ac2::policies::save_only_these_names({"attn_out", "mlp_out"});
//
//   | policy                | named, and listed | everything else  |
//   |-----------------------|-------------------|------------------|
//   | save_only_these_names | MUST_SAVE         | PREFER_RECOMPUTE |
//   | recompute_these_names | MUST_RECOMPUTE    | PREFER_SAVE      |
//   | offload_these_names   | MUST_CPU_OFFLOAD  | PREFER_RECOMPUTE |
//
// Of a name that is not listed they say nothing: the decision for the op that computed the value stands. ac2/offload.h
// says what MUST_CPU_OFFLOAD does. policies/jax_names.h has three more.
//
// These policies cost nothing per op. They throw c10::Error for an empty name. A name that the model never gives does
// nothing, because the names that a model gives cannot be known beforehand.
#pragma once

#include <string>
#include <vector>

#include "ac2/policy.h"

namespace ac2::policies {

Policy save_only_these_names(const std::vector<std::string>& names);
Policy recompute_these_names(const std::vector<std::string>& names);
Policy offload_these_names(const std::vector<std::string>& names);

}  // namespace ac2::policies
