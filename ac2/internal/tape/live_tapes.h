// All tapes of the process, for what concerns a storage whichever regions know it.
//
//   for_each_live_tape([&](Tape& tape) { … });
//
// Threads: any. `fn` runs without a lock; a tape that is made meanwhile may be missed.
#pragma once

#include <c10/util/FunctionRef.h>

#include <memory>

namespace ac2::internal {

class Tape;

void add_live_tape(const std::shared_ptr<Tape>& tape);
// By its destructor.
void remove_live_tape(const Tape* tape);

void for_each_live_tape(c10::function_ref<void(Tape&)> fn);

}  // namespace ac2::internal
