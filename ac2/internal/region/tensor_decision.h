// Decisions for one tensor, after the op that computed it: by a tag, or by its name.
//
// A name may say RECOMPUTE where the op was saved. So a region with policies by name keeps generators' states, and the
// nodes of values that died unused.
//
// Rejected: naming as an op of its own, as in JAX. The op's result would be one more value, and autograd saves the
// value before it.
#pragma once

#include <ATen/core/Tensor.h>

#include "ac2/internal/tape/tape.h"
#include "ac2/policy.h"

namespace ac2::internal {

using DecidedBy = Observer::DecidedBy;

// Decides for the value that the storage of `tensor` holds now. Takes the tape's lock, and may run a pack function. A
// name changes nothing where a tag has decided. Nothing happens for a tensor from outside unless the decision is a
// SaveWithHooks or offloads it, nor if the decision is to recompute what cannot be computed again.
void decide_tensor(Tape& tape, const at::Tensor& tensor, const PolicyDecision& decision, DecidedBy by);

}  // namespace ac2::internal
