// Adds to the error about a saved tensor that was written to before backward whose tensor it is, and who reads it.
//
//   try { …unpack `hook`… } catch (const ModifiedInPlace& error) { throw_naming_the_tensor(error, tape, hook); }
//
// Threads: any, without a lock. The program's names may be asked of Python.
#pragma once

#include "ac2/internal/tape/outside_writes.h"
#include "ac2/internal/tape/tape.h"
#include "ac2/internal/tape/tape_hook.h"

namespace ac2::internal {

// Throws c10::Error with the text of `error` and more lines: the parameter's name if the bytes are one's, the sizes and
// dtype of what `hook` stands for, and the node of backward that unpacks the hook.
//
// LibTorch itself makes the error that is thrown, as it makes every other. A ModifiedInPlace that reached the program
// would be destroyed by an engine thread of LibTorch, beside the thread that reads its text: both count the references,
// but ThreadSanitizer sees the counts of this library alone and reports a race.
[[noreturn]] void throw_naming_the_tensor(const ModifiedInPlace& error, Tape& tape, const TapeHook& hook);

}  // namespace ac2::internal
