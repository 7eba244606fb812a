// The part of KeepSimulator that deals with the form in which a value is held: as it is, packed, or on the host.
#include <algorithm>

#include "ac2/internal/planning/keep_simulator.h"

namespace ac2::internal {

using Fate = StepGraph::Fate;

namespace {

// Of the cost of packing and unpacking, as in NarrowForms of the evictor.
constexpr double kShareOfUnpacking = 0.25;

}  // namespace

bool KeepSimulator::is_kept_as(Keep keep, uint32_t value) const {
  const uint32_t op = graph_.values[value].op;
  return op != StepGraph::kOutside && graph_.ops[op].fate == Fate::kOpen && kept_[op] == keep;
}

bool KeepSimulator::copied(uint32_t value) const {
  return copies_any_ && graph_.values[value].leaves && is_kept_as(Keep::kCopied, value);
}

bool KeepSimulator::narrowed(uint32_t value) const {
  return graph_.values[value].narrows && is_kept_as(Keep::kNarrowed, value);
}

int64_t KeepSimulator::held_bytes(uint32_t value) const {
  return narrowed(value) ? graph_.values[value].narrow_bytes : graph_.values[value].bytes;
}

int64_t KeepSimulator::unpacked_bytes(uint32_t value) const {
  const StepGraph::Value& of = graph_.values[value];
  return copied(value) || narrowed(value) ? of.bytes : of.unpacked_bytes;
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
  if (copied(value)) {
    schedule_.comes_back(value);
  } else if (narrowed(value)) {
    outcome_.narrow_cost += kShareOfUnpacking * graph_.values[value].narrow_cost;
  }
}

void KeepSimulator::hold(uint32_t value) {
  if (states_[value].held) {
    return;
  }
  states_[value].held = true;
  const int64_t bytes = graph_.values[value].bytes;
  if (narrowed(value)) {
    held_ += held_bytes(value);
    ++outcome_.narrowed_values;
    outcome_.narrowed_bytes += bytes;
    outcome_.narrow_cost += (1 - kShareOfUnpacking) * graph_.values[value].narrow_cost;
  } else if (copied(value)) {
    note_peak(bytes);  // the value leaves after it was held
    away_ += bytes;
    ++outcome_.copied_values;
    outcome_.copied_bytes += bytes;
    schedule_.leaves(value, bytes);
  } else {
    held_ += bytes;
    note_coming(value, graph_.values[value].unpacked_bytes > 0);
  }
  note_peak();
}

void KeepSimulator::drop(uint32_t value) {
  ValueState& state = states_[value];
  if (state.held || state.there) {
    (copied(value) ? away_ : held_) -= held_bytes(value);
    if (!copied(value) && !narrowed(value)) {
      note_going(value, graph_.values[value].unpacked_bytes > 0);
    }
    state.held = state.there = false;
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
  copies_any_ = std::find(kept_.begin(), kept_.end(), Keep::kCopied) != kept_.end();
  if (copies_any_) {
    schedule_.clear();
    wanted_at_.assign(graph_.hooks.size(), 0);
    forward_cost_ = backward_passed_ = 0;
  }
}

}  // namespace ac2::internal
