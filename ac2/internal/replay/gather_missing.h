// Parameters that backward reads and that something else has let go of: a region that was asked to gathers them, and
// any region those that have a gatherer of their own (managed_tensors.h).
//
//   gather_missing(tape, *node);      // before a replay takes its inputs
//   gather_missing(tape, *value);     // before a parameter that autograd has saved is handed out
//
// Nothing happens to other parameters in a region without ScopeOptions::gather_units, and to none outside of a
// backward, which would have no end at which the parameters are let go of again. The function of the program's is
// called without the tape's lock and in the turn of the thread that replays (Tape::replay_turn()), as ops and unpack
// functions are. Nothing has been taken from the tape by then, so that an exception of the function's leaves it as it
// was.
//
// Rejected: gathering all that a saved tensor needs before its replay begins. That is one walk over the graph for each
// saved tensor, and the parameters of all units would be there at once.
#pragma once

#include "ac2/internal/graph/node.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

void gather_missing(Tape& tape, const Node& node);
void gather_missing(Tape& tape, const Value& value);

}  // namespace ac2::internal
