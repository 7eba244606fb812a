// Replayed values that a backward leaves to the next one, in a region that was asked to keep them
// (ScopeOptions::keep_for_next_backward).
//
//   keep_for_next_backward(tape, value);   // a hook has been unpacked, for the node that backward is in
//   keep_for_next_backward(tape);          // a backward ends that keeps its graph
//
// A backward that keeps its graph may compute the gradients of some leaves and leave those of others to a later one. So
// a zero-bubble pipeline computes the gradients of inputs (dI) in one backward and those of weights (dW) in another. A
// node of autograd with an edge that this backward leaves out will run again in the later one. What the node has saved
// is held from now on, until its hooks have gone. A node that does not run in this backward at all may want values that
// were replayed for other nodes: these are held too.
//
// Rejected: holding all that living hooks want. A graph keeps the nodes between the weights and the inputs, which the
// later backward does not run.
#pragma once

#include "ac2/internal/graph/value.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

void keep_for_next_backward(LockedTape& tape, Value* value);
void keep_for_next_backward(LockedTape& tape);

}  // namespace ac2::internal
