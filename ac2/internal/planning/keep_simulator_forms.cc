// The part of KeepSimulator that deals with the forms in which values are held.
#include <algorithm>

#include "ac2/internal/planning/keep_simulator.h"

namespace ac2::internal {

using Fate = StepGraph::Fate;

const StepGraph::FormOfValue* KeepSimulator::form(uint32_t value) const {
  const StepGraph::Value& of = graph_.values[value];
  if (of.forms.empty() || of.op == StepGraph::kOutside || graph_.ops[of.op].fate != Fate::kOpen ||
      !is_in_a_form(kept_[of.op])) {
    return nullptr;
  }
  return of.in_form(form_of(kept_[of.op]));
}

int64_t KeepSimulator::unpacked_bytes(uint32_t value) const {
  const StepGraph::Value& of = graph_.values[value];
  return form(value) != nullptr ? of.bytes : of.unpacked_bytes;
}

int64_t KeepSimulator::on_their_way() const {
  return std::min(away_, copies_.in_flight_bytes + (in_backward_ ? copies_.read_ahead_bytes : 0));
}

bool KeepSimulator::must_unpack(uint32_t value) const {
  return unpacked_bytes(value) > 0 && !states_[value].unpacked && saved(value);
}

void KeepSimulator::unpack(uint32_t value) {
  states_[value].unpacked = true;
  held_ += unpacked_bytes(value);
  note_coming(value, /*is_form=*/false);
  note_peak();
  if (const StepGraph::FormOfValue* form = this->form(value)) {
    outcome_.uses[form->form].cost += form->unpack_cost;
    if (is_behind_copies(*form)) {
      schedule_.comes_back(value);
    }
  }
}

void KeepSimulator::hold(uint32_t value) {
  if (states_[value].held) {
    return;
  }
  states_[value].held = true;
  const int64_t bytes = graph_.values[value].bytes;
  if (const StepGraph::FormOfValue* form = this->form(value)) {
    KeepOutcome::FormUse& use = outcome_.uses[form->form];
    ++use.values;
    use.bytes += bytes;
    use.cost += form->pack_cost;
    held_ += form->bytes;
    if (is_behind_copies(*form)) {
      note_peak(bytes);  // the value leaves after it was held
      away_ += bytes;
      schedule_.leaves(value, bytes);
    }
  } else {
    held_ += bytes;
    note_coming(value, graph_.values[value].unpacked_bytes > 0);
  }
  note_peak();
}

void KeepSimulator::drop(uint32_t value) {
  ValueState& state = states_[value];
  if (!state.held && !state.there) {
    return;
  }
  state.held = state.there = false;
  const int64_t bytes = graph_.values[value].bytes;
  if (const StepGraph::FormOfValue* form = this->form(value)) {
    held_ -= form->bytes;
    away_ -= is_behind_copies(*form) ? bytes : 0;
  } else {
    held_ -= bytes;
    note_going(value, graph_.values[value].unpacked_bytes > 0);
  }
}

void KeepSimulator::pass_until(uint32_t hook) {
  if (copies_any_) {
    const double here = graph_.taken_at.empty() ? forward_cost_ - wanted_at_[hook] : graph_.taken_at[hook];
    schedule_.passes(std::max(0.0, here - backward_passed_));
    backward_passed_ = std::max(backward_passed_, here);
  }
}

void KeepSimulator::start_schedule() {
  copies_any_ = std::any_of(kept_.begin(), kept_.end(), [&](Keep keep) {
    return is_in_a_form(keep) && graph_.forms[form_of(keep)] == StepGraph::Queue::kCopies;
  });
  if (copies_any_) {
    schedule_.clear();
    wanted_at_.assign(graph_.hooks.size(), 0);
    forward_cost_ = backward_passed_ = 0;
  }
}

}  // namespace ac2::internal
