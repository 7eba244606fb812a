// One replay: a recorded op is run again for the results of it that are waited for.
#pragma once

#include "ac2/internal/graph/node.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

// All inputs are at hand. The caller has the tape's turn (see ReplayTurn) and not its lock. Throws what the op throws.
void replay(Tape& tape, Node* node);

}  // namespace ac2::internal
