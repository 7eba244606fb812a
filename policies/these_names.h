// Policies that decide by the names that ac2::name_tensor gave to values: the four of jax.checkpoint_policies under
// their names, and two more.
//
//   const ac2::Policy policy = ac2::policies::save_only_these_names({"attn_out", "mlp_out"});
//
//   | policy                           | named, and listed | named, not listed | everything else  |
//   |----------------------------------|-------------------|-------------------|------------------|
//   | save_only_these_names            | MUST_SAVE         | -                 | PREFER_RECOMPUTE |
//   | save_any_names_but_these         | -                 | MUST_SAVE         | PREFER_RECOMPUTE |
//   | save_anything_except_these_names | PREFER_RECOMPUTE  | -                 | PREFER_SAVE      |
//   | recompute_these_names            | MUST_RECOMPUTE    | -                 | PREFER_SAVE      |
//   | offload_these_names              | MUST_CPU_OFFLOAD  | -                 | PREFER_RECOMPUTE |
//
// "-" means that the policy says nothing of the name: the decision for the op that computed the value stands.
// save_and_offload_only_these_names is the first and the last in one; a name that is in both its lists is an error.
// ac2/offload.h says what MUST_CPU_OFFLOAD does. In JAX naming is an op, and its result is another value than its
// argument. Here a name is for the value itself, so save_anything_except_these_names does recompute what it lists.
//
// These policies cost nothing per op. They throw c10::Error for an empty name. A name that the model never gives does
// nothing, because the names that a model gives cannot be known beforehand.
#pragma once

#include <string>
#include <vector>

#include "ac2/policy.h"

namespace ac2::policies {

Policy save_only_these_names(const std::vector<std::string>& names);
Policy save_any_names_but_these(const std::vector<std::string>& names);
Policy save_anything_except_these_names(const std::vector<std::string>& names);
Policy recompute_these_names(const std::vector<std::string>& names);
Policy offload_these_names(const std::vector<std::string>& names);
Policy save_and_offload_only_these_names(const std::vector<std::string>& saved,
                                         const std::vector<std::string>& offloaded);

}  // namespace ac2::policies
