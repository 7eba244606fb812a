// The work that a change under the tape's lock leaves to be done without the lock: values are packed, copies to the
// host are looked after, the budget is met, and the warnings that the change has left are given.
//
//   PendingWork pending;
//   {
//     const Tape::Lock tape(…);
//     …record an op, save a tensor, decide for one…
//     pending.take(*tape);
//   }
//   pending.settle(tape, [&] { return "the saving of a tensor"; });
//
// Rejected: making room before an op of forward runs, from a guess of its results' sizes (nothing at that level tells
// them, and the program holds the results anyway).
//
// Threads: by the thread that made the change. settle() may run code of the program.
#pragma once

#include <c10/macros/Macros.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <string>
#include <utility>

#include "ac2/internal/budget/budget.h"
#include "ac2/internal/libtorch/warn_in_op.h"
#include "ac2/internal/replay/packing.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

class PendingWork {
 public:
  // With the tape's lock, once.
  void take(LockedTape& tape) {
    if (C10_UNLIKELY(tape.bytes().has_pending_packs())) {
      packs_ = tape.bytes().take_pending_packs();
    }
    if (C10_UNLIKELY(tape.has_warning())) {
      warning_ = tape.take_warning();
    }
  }
  // Whether pack functions of the program will run.
  bool has_packs() const { return !packs_.empty(); }
  // Without the lock, after take(). `at` gives the place that an error names if the budget cannot be met. If a pack
  // function throws, the values that it did not come to stay held by reference.
  template <class At>
  void settle(Tape& tape, At&& at) {
    if (C10_UNLIKELY(has_packs())) {
      pack_values(tape, std::exchange(packs_, {}));
    }
    if (OffloadForm* form = tape.offload_form()) {
      form->poll();
    }
    if (Budget* budget = tape.budget()) {
      budget->make_room(0, std::forward<At>(at));
    }
    if (C10_UNLIKELY(warning_ != nullptr)) {
      warn_in_op(*std::exchange(warning_, nullptr));
    }
  }

 private:
  c10::SmallVector<Value*, 2> packs_;
  std::unique_ptr<std::string> warning_;
};

}  // namespace ac2::internal
