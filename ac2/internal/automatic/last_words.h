// Says a process's last words, and writes its page: once, at the end of main() or by exit(), or where std::terminate()
// is called, because nobody catches an error.
//
//   speak_at_the_end(record);   // leaked by its owner
//
// Of an error the words come before what the program's terminate handler says. That handler is called afterwards, and
// so the error's text and the signal are as without ac2. A handler that the program
// sets later takes the place of this one, and nothing is said.
//
// Where std::terminate() is called no stack is unwound, and the thread may hold any lock, of ac2's as well. So another
// thread looks up what there is to say, and the process ends without words where that takes too long. 4 MiB
// of address space are kept for that from the beginning.
//
// Threads: any.
#pragma once

#include "ac2/internal/automatic/process_record.h"

namespace ac2::internal {

// Called once in a process.
void speak_at_the_end(ProcessRecord& record);

}  // namespace ac2::internal
