// The policies of jax.checkpoint_policies under their names, for programs that come from JAX. JAX's True is MUST_SAVE
// and its False PREFER_RECOMPUTE, as bool is everywhere in ac2. save_only_these_names() and save_from_both_policies()
// have the same names in both and stand in these_names.h and composed_policies.h.
//
//   ac2::PolicyScope scope(ac2::policies::dots_with_no_batch_dims_saveable());
//
// Costs and errors are those of strategies.h and these_names.h.
#pragma once

#include <string>
#include <vector>

#include "ac2/policy.h"

namespace ac2::policies {

Policy everything_saveable();  // must_save_all()
Policy nothing_saveable();     // recompute_all()

// dots_saveable() is MUST_SAVE for all matrix products and convolutions; JAX's has conv_general_dilated_p in it too.
// dots_with_no_batch_dims_saveable() is MUST_SAVE for products whose factors have no batch dimension in common:
// aten::mm, addmm, mv and so on, which is what linear layers run as. The policy leaves out aten::bmm, which is what
// attention runs as when it is written out, and convolutions. offload_dot_with_no_batch_dims() is MUST_CPU_OFFLOAD for
// the same products (ac2/offload.h).
//
// All are PREFER_RECOMPUTE for the other ops. Fused attention is one of these, because it is a single op here, as it is
// a kernel of its own in JAX, and no product. save_compute_intensive() saves it.
Policy dots_saveable();
Policy dots_with_no_batch_dims_saveable();
Policy offload_dot_with_no_batch_dims();
// The first two by JAX's other names.
Policy checkpoint_dots();
Policy checkpoint_dots_with_no_batch_dims();

//   | policy                           | named, and listed | named, not listed | everything else  |
//   |----------------------------------|-------------------|-------------------|------------------|
//   | save_any_names_but_these         | -                 | MUST_SAVE         | PREFER_RECOMPUTE |
//   | save_anything_except_these_names | PREFER_RECOMPUTE  | -                 | PREFER_SAVE      |
//
// "-" means that the policy says nothing of the name: the decision for the op that computed the value stands. In JAX
// naming is an op, and its result is another value than its argument. Here a name is for the value itself, so
// save_anything_except_these_names does recompute what it lists. recompute_these_names() is the same as a MUST.
Policy save_any_names_but_these(const std::vector<std::string>& names);
Policy save_anything_except_these_names(const std::vector<std::string>& names);
// save_only_these_names(saved) and offload_these_names(offloaded) in one. A name that is in both lists is an error.
Policy save_and_offload_only_these_names(const std::vector<std::string>& saved,
                                         const std::vector<std::string>& offloaded);

}  // namespace ac2::policies
