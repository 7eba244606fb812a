#include "ac2/internal/region/tensor_decision.h"

#include <c10/util/StringUtil.h>

#include "ac2/internal/replay/pending_work.h"

namespace ac2::internal {

namespace {

// Decides for a value that a budget may drop.
void decide_droppable(LockedTape& tape, Value* value, const at::Tensor& tensor, const PolicyDecision& decision,
                      bool leaves) {
  tape.decisions().set_form(value, decision.form(), tensor);
  // Offloaded bytes take none of the budget.
  tape.kept().decide_again(value, leaves ? PolicyDecision(CheckpointPolicy::MUST_CPU_OFFLOAD) : decision);
  if (leaves) {
    tape.offloading().offload(value, tensor);
  }
}

void decide_now(LockedTape& tape, const at::Tensor& tensor, const PolicyDecision& decision, DecidedBy by) {
  const bool leaves = decision.offloads() && tape.offloading().may_leave(tensor);
  Value* value = decision.form() || leaves ? tape.storages().current(tensor) : tape.storages().find(tensor);
  if (value == nullptr) {
    return;  // from outside: held by reference, and there is no op to compute it again
  }
  if (by == DecidedBy::kName && value->is_tagged()) {
    return;
  }
  if (by == DecidedBy::kTag) {
    tape.decisions().set_tagged(value);
  }
  tape.observers().tell([&](Observer& observer) { observer.decided_again(*value, decision, by); });
  if (value->budget().droppable) {
    decide_droppable(tape, value, tensor, decision, leaves);
  } else if (!decision.saves()) {
    tape.decisions().make_recomputed(value);
  } else {
    if (decision.offloads()) {
      tape.offloading().offload(value, tensor);
    } else {
      tape.decisions().set_form(value, decision.form(), tensor);
    }
    tape.decisions().make_saved(value);
  }
}

// The result of a collective that is on its way can be neither packed nor copied, for its bytes come later. It is saved
// as it is.
void decide(LockedTape& tape, const at::Tensor& tensor, const PolicyDecision& decision, DecidedBy by) {
  const bool looks = decision.form() != nullptr || decision.offloads();
  const Value* value = looks ? tape.storages().find(tensor) : nullptr;
  const bool is_on_its_way = value != nullptr && value->is_on_its_way();
  decide_now(tape, tensor, is_on_its_way ? PolicyDecision(CheckpointPolicy::MUST_SAVE) : decision, by);
}

}  // namespace

void decide_tensor(Tape& tape, const at::Tensor& tensor, const PolicyDecision& decision, DecidedBy by) {
  PendingWork pending;
  {
    const Tape::Lock locked(tape);
    decide(*locked, tensor, decision, by);
    // Packs for the value itself, or for the values that computing it again now needs.
    pending.take(*locked);
  }
  pending.settle(tape, [&] { return c10::str("the decision for a tensor of shape ", tensor.sizes()); });
}

}  // namespace ac2::internal
