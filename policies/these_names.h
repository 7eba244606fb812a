// Policies that decide by the names that ac2::name_tensor gave: the four of jax.checkpoint_policies under their names,
// and two more.
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
// "-" is nothing: the value is kept as the op that computed it was decided. save_and_offload_only_these_names is the
// first and the last in one. A name in both its lists is an error. Unlike in JAX, where naming is an op and what it was
// given is a value of its own, a name is for the very value: save_anything_except_these_names does recompute what it
// lists. ac2/offload.h says what MUST_CPU_OFFLOAD does. Guaranteed: costs nothing per op. Throws c10::Error for
// an empty name. Which names a model gives cannot be known beforehand, so a name that nobody gives does nothing.
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
