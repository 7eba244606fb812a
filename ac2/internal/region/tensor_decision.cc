#include "ac2/internal/region/tensor_decision.h"

#include "ac2/internal/tape/packing.h"
#include "ac2/internal/tape/step_log.h"
#include "ac2/internal/tape/timeline.h"

namespace ac2::internal {

void decide_tensor(Tape& tape, const at::Tensor& tensor, const PolicyDecision& decision, DecidedBy by) {
  c10::SmallVector<Value*, 2> packs;
  {
    const Tape::Lock lock(tape);
    const bool leaves = decision.offloads() && tape.may_leave(tensor);
    Value* value = decision.hooks() || leaves ? tape.current(tensor) : tape.find_current(tensor);
    if (value == nullptr) {
      return;  // from outside: kept by reference, and there is no op to compute it again
    }
    if (by == DecidedBy::kName && value->tagged) {
      return;
    }
    value->tagged |= by == DecidedBy::kTag;
    if (StepLog* log = tape.step_log()) {
      log->tagged(*value, decision);
    }
    if (value->budgeted) {
      tape.set_hooks(value, decision.hooks(), tensor);
      // What is offloaded takes none of the budget.
      tape.retain(value, leaves ? PolicyDecision(CheckpointPolicy::MUST_CPU_OFFLOAD) : decision);
      if (leaves) {
        tape.set_offload(value, tensor);
      }
    } else if (decision.saves()) {
      decision.offloads() ? tape.set_offload(value, tensor) : tape.set_hooks(value, decision.hooks(), tensor);
      tape.make_saved(value);
    } else {
      tape.make_recomputed(value);
    }
    if (Timeline* timeline = tape.timeline()) {
      timeline->note_decision(value, by == DecidedBy::kTag ? TraceLog::Source::TAG : TraceLog::Source::NAME);
    }
    // Of the value itself, or of what computing it again now needs.
    packs = tape.take_pending_packs();
  }
  pack_values(tape, packs);
}

}  // namespace ac2::internal
