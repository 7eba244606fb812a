// The ready-made policies.
//
//   | policy                                  | saves                               | recomputes         |
//   |-----------------------------------------|-------------------------------------|--------------------|
//   | recompute_all()                         | nothing                             | all                |
//   | must_save_all()                         | all that backward needs             | nothing            |
//   | save_ops({…})                           | the listed ops                      | all others         |
//   | recompute_ops({…})                      | whatever else backward needs        | the listed ops     |
//   | save_compute_intensive()                | products, convolutions, attention   | all others         |
//   | speed()                                 | the same, and all else that is slow | all others         |
//   | memory()                                | where branches join                 | all others         |
//   | by_size(min_bytes)                      | results of fewer bytes              | larger ones        |
//   | every_nth(n)                            | every nth result                    | those between      |
//   | everything_saveable()                   | all that backward needs             | nothing            |
//   | nothing_saveable()                      | nothing                             | all                |
//   | dots_saveable()                         | products, convolutions              | all others         |
//   | dots_with_no_batch_dims_saveable()      | products without a batch            | all others         |
//   | offload_dot_with_no_batch_dims()        | the same, offloaded                 | all others         |
//   | offload_ops({…})                        | the listed ops, offloaded           | all others         |
//   | save_only_these_names({…})              | values so named                     | all others         |
//   | save_any_names_but_these({…})           | values named otherwise              | all others         |
//   | save_anything_except_these_names({…})   | whatever else backward needs        | values so named    |
//   | recompute_these_names({…})              | whatever else backward needs        | values so named    |
//   | offload_these_names({…})                | values so named                     | all others         |
//   | by_module({{pattern, decision}, …})     | what the rules say, by module       | all others         |
//   | quantize_ops({…}, bits)                 | the listed ops, in 8, 4 or 1 bit¹   | all others         |
//   | narrow_ops({…}, at::kBFloat16)          | the listed ops, so, or in float8¹   | all others         |
//   | spill_to_file(directory, {…})           | the listed ops, in files            | all others         |
//   | save_from_both_policies(a, b)           | what either saves                   | what neither saves |
//   | first_of({a, b, …})                     | as the first that insists           | so too             |
//   | per_op_override(a, {{op, decision}, …}) | as a, but the listed ops            | so too             |
//
// ¹ Gradients change; the bound is in docs/quantisation.md.
//
// checkpoint_dots() and checkpoint_dots_with_no_batch_dims() are JAX's other names for the two dots; every_nth(n, ops)
// counts only the listed ops; save_and_offload_only_these_names(a, b) saves the first list and offloads the second.
//
// The policies without parameters have names: ac2::PolicyScope scope("speed"). policies/README.md says how to add a
// policy. The headers, each about one kind:
//   - all_or_nothing.h: alike for every op
//   - listed_ops.h: ops that the program lists
//   - strategies.h: the policy chooses the ops, by cost, size or place
//   - by_module.h: modules, by their paths and classes
//   - these_names.h: values that the program has named
//   - jax_names.h: those of JAX, by their names there
//   - composed_policies.h: policies made of policies
//   - quantize_ops.h, narrow_ops.h, spill_to_file.h: saved in another form
//   - by_name.h: names, for flags
#pragma once

#include "policies/all_or_nothing.h"     // IWYU pragma: export
#include "policies/by_module.h"          // IWYU pragma: export
#include "policies/by_name.h"            // IWYU pragma: export
#include "policies/composed_policies.h"  // IWYU pragma: export
#include "policies/jax_names.h"          // IWYU pragma: export
#include "policies/listed_ops.h"         // IWYU pragma: export
#include "policies/narrow_ops.h"         // IWYU pragma: export
#include "policies/quantize_ops.h"       // IWYU pragma: export
#include "policies/spill_to_file.h"      // IWYU pragma: export
#include "policies/strategies.h"         // IWYU pragma: export
#include "policies/these_names.h"        // IWYU pragma: export
