// Saves the results of matrix products, recomputes everything else: dots_saveable and its relatives of
// jax.checkpoint_policies, under their names.
//
//   ac2::PolicyScope scope(ac2::policies::dots_with_no_batch_dims_saveable());
//
// Ops: dots_saveable() is MUST_SAVE for all matrix products and convolutions (as in JAX, which has
// conv_general_dilated_p in it). dots_with_no_batch_dims_saveable() is MUST_SAVE for products in which the factors have
// no dimension of a batch in common: aten::mm, addmm, mv and so on, which is what linear layers run as. Not for
// aten::bmm, which is what attention that is written out runs as, and not for convolutions. Both are PREFER_RECOMPUTE
// for the others: fused attention is one op here, as a kernel of its own is in JAX, and no product.
// save_compute_intensive() has it. offload_dot_with_no_batch_dims() is MUST_CPU_OFFLOAD for the products without a
// batch (ac2/offload.h). Guaranteed: none of the ops saved is replayed. Regions ask once per operator.
#pragma once

#include "ac2/policy.h"

namespace ac2::policies {

Policy dots_saveable();
Policy dots_with_no_batch_dims_saveable();
Policy offload_dot_with_no_batch_dims();

// The same, by JAX's other names.
Policy checkpoint_dots();
Policy checkpoint_dots_with_no_batch_dims();

}  // namespace ac2::policies
