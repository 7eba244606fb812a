// How one tensor is kept, decided after the op that computed it: by a tag, or by its name.
#pragma once

#include <ATen/core/Tensor.h>

#include "ac2/internal/tape/tape.h"
#include "ac2/policy.h"

namespace ac2::internal {

using DecidedBy = Observer::DecidedBy;

// Of the storage that `tensor` lies in, in its present version. Takes the tape's lock; may run a pack hook. A name
// changes nothing where a tag has decided. Nothing to do for a tensor from outside, but with hooks, nor where RECOMPUTE
// is said of what cannot be computed again.
void decide_tensor(Tape& tape, const at::Tensor& tensor, const PolicyDecision& decision, DecidedBy by);

}  // namespace ac2::internal
