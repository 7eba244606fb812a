// Says of an error about a tensor that was written to before backward whose tensor it is, and who reads it.
//
//   try { …unpack `hook`… } catch (ModifiedInPlace& error) { say_whose_write(error, tape, hook); throw; }
//
// Threads: any, without a lock. The program's names may be asked of Python.
#pragma once

#include "ac2/internal/tape/outside_writes.h"
#include "ac2/internal/tape/tape.h"
#include "ac2/internal/tape/tape_hook.h"

namespace ac2::internal {

// Adds lines to `error`: the parameter's name if the bytes are one's, the sizes and dtype of what `hook` stands for,
// and the node of backward that unpacks the hook.
void say_whose_write(ModifiedInPlace& error, Tape& tape, const TapeHook& hook);

}  // namespace ac2::internal
