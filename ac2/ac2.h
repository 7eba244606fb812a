// Everything of ac2 but the ready-made policies, which are in policies/policies.h.
//
// Read in this order, the headers explain the library; each begins with what it is for.
//   policy.h                what to do with the result of an op, and functions that decide it
//   form.h                  ways in which a result is held other than as it is
//   bytes.h                 numbers of bytes
//   memory_budget.h         a number of bytes instead of a decision
//   rank_group.h            the ranks of a job, which agree on what their budgets drop
//   budget_option.h         what a scope may be given for one
//   offload.h               results in the host's memory
//   scope.h                 regions: where ops are recorded under a policy. A program may need no more than this
//   op_scopes.h             single calls decided otherwise
//   in_chunks.h             one op that is too large, a few rows at a time
//   linear_cross_entropy.h  the loss of a large vocabulary, likewise
//   tiled_mlp.h             an MLP over many tokens, likewise
//   query_chunked_attention.h
//                           attention over many queries, likewise
//   replayable.h            kernels of the program's as ops
//   names.h                 names for values, which policies may look at
//   expose.h                tensors to which code writes that no dispatcher sees
//   current_decision.h      what the policies in force would decide
//   trace.h                 what a region has recorded, as numbers
//   report.h                the same for people: text, a page, a graph, a time line
//   plan.h                  what to keep, chosen for a whole step
//   policy_instance.h       for policies that are made of policies
//   nn/nn.h                 regions by module
//   version.h               which ac2 this is
//   old_names.h             names of programs that were written before 0.1
#pragma once

// The headers, in the order in which they are read.
// clang-format off
#include "ac2/policy.h"                   // IWYU pragma: export
#include "ac2/form.h"                     // IWYU pragma: export
#include "ac2/bytes.h"                    // IWYU pragma: export
#include "ac2/memory_budget.h"            // IWYU pragma: export
#include "ac2/rank_group.h"               // IWYU pragma: export
#include "ac2/budget_option.h"            // IWYU pragma: export
#include "ac2/offload.h"                  // IWYU pragma: export
#include "ac2/scope.h"                    // IWYU pragma: export
#include "ac2/op_scopes.h"                // IWYU pragma: export
#include "ac2/in_chunks.h"                // IWYU pragma: export
#include "ac2/linear_cross_entropy.h"     // IWYU pragma: export
#include "ac2/tiled_mlp.h"                // IWYU pragma: export
#include "ac2/query_chunked_attention.h"  // IWYU pragma: export
#include "ac2/replayable.h"               // IWYU pragma: export
#include "ac2/names.h"                    // IWYU pragma: export
#include "ac2/expose.h"                   // IWYU pragma: export
#include "ac2/current_decision.h"         // IWYU pragma: export
#include "ac2/trace.h"                    // IWYU pragma: export
#include "ac2/report.h"                   // IWYU pragma: export
#include "ac2/plan.h"                     // IWYU pragma: export
#include "ac2/policy_instance.h"          // IWYU pragma: export
#include "ac2/nn/nn.h"                    // IWYU pragma: export
#include "ac2/version.h"                  // IWYU pragma: export
#include "ac2/old_names.h"                // IWYU pragma: export
// clang-format on
