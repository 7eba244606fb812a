// A replay: a recorded op is run again for those of its results that are waited for.
#pragma once

#include "ac2/internal/graph/node.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

// All inputs are at hand. The caller has the tape's turn (Tape::replay_turn()) and not its lock. Throws what the op
// throws, and if a budget has no room for the results. `enough_budget` is the size of a budget that would have had
// room, for the error's text.
void replay(Tape& tape, Node* node, int64_t enough_budget);
// The same, but where a budget has no room for the results the op does not run, and the function returns false.
bool replay_if_there_is_room(Tape& tape, Node* node);

}  // namespace ac2::internal
