// After a replay that no second backward will ask for: its results are held in place of the inputs that only it needed.
//
// A saved value is held until autograd frees what is computed from it. Once that has been replayed, both would be held
// side by side. torch.utils.checkpoint's selective form drops what it has passed on to the replay, too.
#pragma once

#include "ac2/internal/tape/locked_tape.h"

namespace ac2::internal {

// `node` has just been replayed. If the graph of the backward under way is not kept, and the saved values that only
// this node uses hold at least as many bytes as its results, these are saved values from now on.
void hold_results_instead_of_inputs(LockedTape& tape, Node* node);

}  // namespace ac2::internal
