// Holds the results of a replay in place of the inputs that only this replay needed, if no second backward will ask for
// them.
//
// A saved value is held until autograd frees what is computed from it. Once a replay has computed that, the saved value
// and the results would be held side by side. torch.utils.checkpoint's selective form, too, drops what it has passed on
// to the replay.
#pragma once

#include "ac2/internal/tape/locked_tape.h"

namespace ac2::internal {

// `node` has just been replayed. The results are saved values from now on if the graph of the backward under way is not
// kept, and if the saved values that only this node uses hold at least as many bytes as the results.
void hold_results_instead_of_inputs(LockedTape& tape, Node* node);

}  // namespace ac2::internal
