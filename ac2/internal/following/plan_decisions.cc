#include "ac2/internal/following/plan_decisions.h"

#include <cstddef>

#include "ac2/internal/forms/form_access.h"
#include "ac2/internal/planning/keep.h"
#include "ac2/offload_options.h"
#include "ac2/policy.h"

namespace ac2::internal {

namespace {

CheckpointPolicy decision_for(StepGraph::Fate fate, Keep keep, bool is_final) {
  if (fate == StepGraph::Fate::kSaved) {
    return CheckpointPolicy::PREFER_SAVE;  // the policy that saves the result wins over this
  }
  if (is_final) {
    return CheckpointPolicy::MUST_SAVE;  // nothing is held for replays of the op, for there are none
  }
  if (fate == StepGraph::Fate::kRecomputed || keep == Keep::kNothing) {
    return CheckpointPolicy::MUST_RECOMPUTE;
  }
  // A budget keeps what hooks want; for the sake of replays alone only MUST_SAVE does.
  return keep == Keep::kWanted ? CheckpointPolicy::PREFER_SAVE : CheckpointPolicy::MUST_SAVE;
}

void set_forms(const FormPlan& plan, const PlannedOps& ops, PlannedStep& step) {
  step.forms = ops.forms;
  step.in_form.assign(step.calls.size(), PlannedStep::kInNoForm);
  for (size_t op = 0; op < ops.graph.ops.size(); ++op) {
    const Keep keep = plan.keep.kept[op];
    if (ops.graph.ops[op].fate != StepGraph::Fate::kOpen || !is_in_a_form(keep)) {
      continue;
    }
    const uint8_t form = form_of(keep);
    if (ops.graph.forms[form] == StepGraph::Queue::kCopies) {
      step.decisions[ops.indices[op]] = CheckpointPolicy::MUST_CPU_OFFLOAD;
      step.copies = OffloadOptions{.min_bytes = FormAccess::copied_with(*ops.forms[form])->min_bytes,
                                   .read_ahead_bytes = plan.copies.read_ahead_bytes,
                                   .in_flight_bytes = plan.copies.in_flight_bytes};
    } else {
      step.in_form[ops.indices[op]] = form;
      step.is_inexact |= !ops.forms[form]->is_exact();
    }
  }
}

}  // namespace

void set_decisions(const FormPlan& plan, const PlannedOps& ops, PlannedStep& step) {
  step.decisions.assign(step.calls.size(), CheckpointPolicy::PREFER_SAVE);
  for (size_t op = 0; op < ops.graph.ops.size(); ++op) {
    if (!ops.decided_within[op]) {
      const bool is_final = !ops.are_final.empty() && ops.are_final[op] != 0;
      step.decisions[ops.indices[op]] = decision_for(ops.graph.ops[op].fate, plan.keep.kept[op], is_final);
    }
  }
  if (plan.keep.outcome.uses_a_form()) {
    set_forms(plan, ops, step);
  }
}

}  // namespace ac2::internal
