// The TraceLog of a tape, as its timeline has written it, or else of what can still be reached.
#pragma once

#include "ac2/internal/observe/trace_log.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

// Takes the tape's lock.
TraceLog log_of(Tape& tape);

}  // namespace ac2::internal
