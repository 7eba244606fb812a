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
//   | quantize_ops({…}, bits)                 | the listed ops, in 8, 4 or 1 bit¹   | all others         |
//   | narrow_ops({…}, at::kBFloat16)          | the listed ops, so, or in float8¹   | all others         |
//   | spill_to_file(directory, {…})           | the listed ops, in files            | all others         |
//   | save_from_both_policies(a, b)           | what either saves                   | what neither saves |
//   | first_of({a, b, …})                     | as the first that insists           | so too             |
//   | per_op_override(a, {{op, decision}, …}) | as a, but the listed ops            | so too             |
//
// ¹ Gradients change; the bound is in docs/quantisation.md.
// checkpoint_dots() and checkpoint_dots_with_no_batch_dims() are JAX's other names for the two dots; every_nth(n, ops)
// counts the listed ops alone; save_and_offload_only_these_names(a, b) does both. policy_by_name("speed") finds those
// without parameters. policies/README.md says how to add one.
#pragma once

#include "policies/by_name.h"                  // IWYU pragma: export
#include "policies/by_size.h"                  // IWYU pragma: export
#include "policies/dots_saveable.h"            // IWYU pragma: export
#include "policies/every_nth.h"                // IWYU pragma: export
#include "policies/first_of.h"                 // IWYU pragma: export
#include "policies/memory.h"                   // IWYU pragma: export
#include "policies/must_save_all.h"            // IWYU pragma: export
#include "policies/narrow_ops.h"               // IWYU pragma: export
#include "policies/offload_ops.h"              // IWYU pragma: export
#include "policies/per_op_override.h"          // IWYU pragma: export
#include "policies/quantize_ops.h"             // IWYU pragma: export
#include "policies/recompute_all.h"            // IWYU pragma: export
#include "policies/recompute_ops.h"            // IWYU pragma: export
#include "policies/save_compute_intensive.h"   // IWYU pragma: export
#include "policies/save_from_both_policies.h"  // IWYU pragma: export
#include "policies/save_ops.h"                 // IWYU pragma: export
#include "policies/saveable.h"                 // IWYU pragma: export
#include "policies/speed.h"                    // IWYU pragma: export
#include "policies/spill_to_file.h"            // IWYU pragma: export
#include "policies/these_names.h"              // IWYU pragma: export
