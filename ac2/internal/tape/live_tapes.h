// All tapes of the process, for what concerns a storage whichever regions know it.
//
//   for_each_live_tape([&](Tape& tape) { … });
//   for_each_open_tape([&](Tape& tape) { … });   // those whose regions are not over
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

// Its region is over.
void note_closed_tape(const Tape* tape);

void for_each_live_tape(c10::function_ref<void(Tape&)> fn);
void for_each_open_tape(c10::function_ref<void(Tape&)> fn);

// For a fork(): calls `fn` for each tape there is, also for those that are made meanwhile, and from then on keeps
// others from being made. The caller keeps what it is given until unlock_live_tapes().
void lock_live_tapes(c10::function_ref<void(std::shared_ptr<Tape>)> fn);
void unlock_live_tapes();

// Relaxed: a thread that uses a tensor which another thread's region has taken comes after that region's opening, in an
// order that the program makes.
bool is_any_tape_alive();
int open_tapes();

}  // namespace ac2::internal
