// The last resort where a budget has no room for a replay: brings a value back with as few bytes at once as we know
// how.
//
// The usual way keeps what it has met: all inputs of the nodes between the value and the one that is being replayed
// stay while they are gathered. Here inputs are gathered one after the other, in the order that takes the fewest bytes
// (ReplayNeeds), and only those that have been gathered stay. The others may be dropped meanwhile, and are computed
// again when their turn comes. So more may be replayed, but whether there is room no longer depends on what happens to
// be there.
#pragma once

#include "ac2/internal/graph/node.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

// `target` is pinned and known to the tape's budget. The caller has the tape's turn and not its lock. Throws c10::Error
// if the budget has no room, and what unpacking and the ops throw.
void realize_sparingly(Tape& tape, Value* target);

}  // namespace ac2::internal
