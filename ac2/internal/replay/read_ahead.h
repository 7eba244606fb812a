// Copies offloaded values back before backward wants them.
//
// Autograd takes out what it saved last first, so the tape's list of hooks says what comes next: a value that was
// offloaded, or one that will be replayed from such values. Where a tape ends, that of the region opened before it goes
// on. The list is walked once in a backward, however long it is.
//
// Threads: run() and stop() are called without any lock, from any thread.
#pragma once

#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

class ReadAhead {
 public:
  // A backward begins on the tape: all of its hooks are wanted again.
  static void restart(LockedTape& tape);
  // A hook of the tape has just been taken out: starts copies until values that were not used yet take as many bytes of
  // the device as the region's options allow.
  static void run(Tape& tape);
  // The backward is over on the tape. Values that were copied back for it and not used are dropped.
  static void stop(Tape& tape);
};

}  // namespace ac2::internal
