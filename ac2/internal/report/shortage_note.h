// The whole text that an error about memory gets: which op asked, what regions hold, whose graphs, and what the program
// holds that nobody may drop.
//
// Threads: any. No lock may be held.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ac2/internal/libtorch/out_of_memory.h"

namespace ac2::internal {

// `error` is the text of the error; `call` the op that asked, or null. Empty if no op is known, and regions hold
// nothing of the memory that has run out.
std::string shortage_note(std::string_view error, const FailedCall* call);
// The same but for what regions hold, in sentences, and also if that is nothing. `where` is the program's line that the
// error came by; empty: not known.
std::vector<std::string> reasons_for_shortage(std::string_view error, std::string_view where);

}  // namespace ac2::internal
