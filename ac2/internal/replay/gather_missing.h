// Gathers parameters that backward reads and whose bytes something else has let go of. A region that was asked to
// gathers all of them (ScopeOptions::gather_units). Every region gathers those that have a gatherer of their own
// (managed_tensors.h).
//
//   gather_missing(tape, *node);      // before a replay takes its inputs
//   gather_missing(tape, *value);     // before a parameter that autograd has saved is handed out
//
// Nothing is gathered outside of a backward: there would be no end at which the parameters are let go of again. The
// program's function is called without the tape's lock and in the turn of the thread that replays
// (Tape::replay_turn()), as ops and unpack functions are. Nothing has been taken from the tape by then, so that an
// exception of the function's leaves the tape as it was.
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
