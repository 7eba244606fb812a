// An unpacked tensor is to autograd what the saved one would have been. Plain autograd unpacks the tensor that was
// saved, with the other references to it, its version counter, and its place in the region. These functions see to
// that.
//
// Threads: any, without a lock. A leaf may be Python's.
#pragma once

#include <ATen/core/Tensor.h>

#include "ac2/internal/replay/saved_leaf.h"
#include "ac2/internal/tape/tape.h"
#include "ac2/internal/tape/tape_hook.h"

namespace ac2::internal {

// Returns the tensor that `hook`, which saved `leaf`, gives autograd. A leaf without a gradient itself, if its bytes
// are those of `unpacked`: plain autograd gives functions the tensor itself. Else `unpacked`, which is lent or copied
// if the function that unpacks it may return it as a gradient and its bytes are read again after that.
at::Tensor leaf_to_give(Tape& tape, const TapeHook& hook, const SavedLeaf& leaf, at::Tensor unpacked);

// A backward that makes a graph saves the unpacked tensor once more. Writes to what was saved in forward are errors for
// that graph too, as in plain autograd, where both graphs have one tensor.
void share_version_counter(Tape& tape, const TapeHook& hook, const at::Tensor& unpacked);

// A backward that makes a graph is about to be given the value's bytes. If it runs in the region, its ops are recorded,
// and take the value and not the tensor.
void note_unpacked(Tape& tape, TapeHook& hook, const at::Tensor& unpacked);

}  // namespace ac2::internal
