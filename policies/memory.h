// Strategy "memory": saves nothing but where branches join. For a region around many layers: backward then replays from
// one join to the next, and never holds more than the layers between.
//
//   ac2::PolicyScope scope(ac2::policies::memory());   // around the whole model
//
// Ops: MUST_SAVE where an op joins branches, PREFER_RECOMPUTE elsewhere. An op joins branches if at least two of its
// tensor inputs, in different storages, descend from one and the same tensor that came from outside the region and
// requires a gradient, and if its results take no more bytes than those inputs together: of several values it makes
// one. So
//   - x + f(x), a residual, is saved, whether x comes from outside or not;
//   - gate * up, cat({a, b}), fused attention of q, k, v, and weights · v are saved, if both sides come from one x;
//   - x · W + b is not, nor are scores q · kᵀ that are larger than q and k, nor a mask that is added;
//   - nor is x · Wᵀ, where W is a parameter of which x descends too (tied weights): a leaf that an op takes as it is
//     counts as a branch only if it has the sizes of a result, as x has in x + f(x).
// Tensors without a storage (sparse, nested) are nobody's ancestors.
// State: each region has its own. Asked for every op, in time linear in its inputs and in the number of tensors from
// outside / 64.
#pragma once

#include "ac2/policy.h"

namespace ac2::policies {

Policy memory();

}  // namespace ac2::policies
