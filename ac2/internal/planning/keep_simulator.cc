#include "ac2/internal/planning/keep_simulator.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "ac2/internal/planning/final_ops.h"

namespace ac2::internal {

using Event = StepGraph::Event;
using Fate = StepGraph::Fate;

namespace {

// Sums that are too large for a number are the largest number.
int64_t bytes_in_flight(int64_t steps, int64_t waiting, int64_t peak) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  if (waiting > 0 && steps - 1 > (kMost - peak) / waiting) {
    return kMost;
  }
  return (steps - 1) * waiting + peak;
}

}  // namespace

KeepSimulator::KeepSimulator(const StepGraph& graph)
    : graph_(graph), uses_(graph), may_have_final_ops_(may_have_final_ops(graph, uses_.wanted())) {}

std::vector<uint8_t> KeepSimulator::final_ops(absl::Span<const Keep> kept) const {
  return may_have_final_ops_ ? internal::final_ops(graph_, uses_.wanted(), kept) : std::vector<uint8_t>();
}

void KeepSimulator::complete(std::vector<Keep>& kept) const {
  std::vector<uint8_t> replay_takes(graph_.values.size());
  for (size_t i = graph_.ops.size(); i-- > 0;) {
    const StepGraph::Op& op = graph_.ops[i];
    const bool is_kept = op.fate == Fate::kOpen && kept[i] != Keep::kNothing;
    bool wanted = false;
    bool taken = false;  // a replay takes a result that is not kept for a hook
    for (const uint32_t result : op.results) {
      wanted |= uses_.wanted(result);
      taken |= replay_takes[result] != 0 && !(is_kept && uses_.wanted(result));
    }
    const Keep full = is_in_a_form(kept[i]) ? kept[i] : taken ? Keep::kAll : Keep::kWanted;
    kept[i] = is_kept && (wanted || taken) ? full : Keep::kNothing;
    if (op.fate != Fate::kSaved && kept[i] == Keep::kNothing && (wanted || taken)) {
      for (const uint32_t input : op.inputs) {
        replay_takes[input] = 1;
      }
    }
  }
}

bool KeepSimulator::saved(uint32_t value) const {
  const uint32_t op = graph_.values[value].op;
  if (op == StepGraph::kOutside) {
    return graph_.values[value].ours;
  }
  return graph_.ops[op].fate == Fate::kSaved || (!final_.empty() && final_[op] != 0) ||
         (graph_.ops[op].fate == Fate::kOpen && is_saved_for_replays(kept_[op]));
}

void KeepSimulator::note_peak(int64_t more) {
  outcome_.peak_bytes = std::max(outcome_.peak_bytes, held_ + more + on_their_way());
  if (watch_ != nullptr) {
    watch_->may_be_most();
  }
}

void KeepSimulator::note_coming(uint32_t value, bool is_form) {
  if (watch_ != nullptr) {
    watch_->bytes_come(value, is_form);
  }
}

void KeepSimulator::note_going(uint32_t value, bool is_form) {
  if (watch_ != nullptr) {
    watch_->bytes_go(value, is_form);
  }
}

bool KeepSimulator::keeps(uint32_t value) const {
  const uint32_t op = graph_.values[value].op;
  if (op == StepGraph::kOutside) {
    return graph_.values[value].ours;
  }
  return saved(value) || (graph_.ops[op].fate == Fate::kOpen && kept_[op] != Keep::kNothing);
}

bool KeepSimulator::at_hand(uint32_t value) const {
  return graph_.values[value].op == StepGraph::kOutside || states_[value].held || states_[value].there || saved(value);
}

void KeepSimulator::pin(uint32_t root) {
  work_.assign(1, root);
  while (!work_.empty()) {
    const uint32_t value = work_.back();
    work_.pop_back();
    ValueState& state = states_[value];
    if (state.pins++ > 0 || at_hand(value)) {
      continue;
    }
    state.waits = true;
    const uint32_t op = graph_.values[value].op;
    if (needed_[op]++ == 0) {
      work_.insert(work_.end(), graph_.ops[op].inputs.begin(), graph_.ops[op].inputs.end());
    }
  }
}

void KeepSimulator::unpin(uint32_t root) {
  work_.assign(1, root);
  while (!work_.empty()) {
    const uint32_t value = work_.back();
    work_.pop_back();
    ValueState& state = states_[value];
    if (--state.pins > 0) {
      continue;
    }
    if (state.unpacked) {
      state.unpacked = false;
      held_ -= unpacked_bytes(value);
      note_going(value, /*is_form=*/false);
    }
    if (state.there) {
      drop(value);
    }
    if (!state.waits) {
      continue;
    }
    state.waits = false;
    const uint32_t op = graph_.values[value].op;
    if (--needed_[op] == 0) {
      work_.insert(work_.end(), graph_.ops[op].inputs.begin(), graph_.ops[op].inputs.end());
    }
  }
}

void KeepSimulator::unpin_hook(uint32_t hook) {
  if (pinned_[hook] != 0) {
    pinned_[hook] = 0;
    unpin(graph_.hooks[hook]);
  }
}

void KeepSimulator::begin_backward() {
  for (uint32_t hook = 0; hook < alive_.size(); ++hook) {
    unpin_hook(hook);
  }
  for (uint32_t hook = 0; hook < alive_.size(); ++hook) {
    if (alive_[hook] != 0) {
      pinned_[hook] = 1;
      pin(graph_.hooks[hook]);
    }
  }
}

void KeepSimulator::replay(uint32_t index) {
  const StepGraph::Op& op = graph_.ops[index];
  int64_t over = 0;
  for (const uint32_t value : op.takes) {
    const bool nobody_else_waits = states_[value].there && states_[value].pins == 1;
    over += nobody_else_waits ? graph_.values[value].bytes : 0;
  }
  note_peak(uses_.result_bytes(index) - over);
  if (watch_ != nullptr) {
    watch_->replays(index, over);
  }
  outcome_.replay_cost += op.cost;
  if (copies_any_) {
    schedule_.passes(op.cost);
  }
  ++outcome_.replays;
  for (const uint32_t result : op.results) {
    if (states_[result].pins > 0 && !at_hand(result)) {
      states_[result].there = true;
      held_ += graph_.values[result].bytes;
      note_coming(result, graph_.values[result].unpacked_bytes > 0);
    }
    states_[result].waits = false;
  }
  needed_[index] = 0;
  for (const uint32_t input : op.inputs) {
    unpin(input);
  }
}

void KeepSimulator::bring_back(uint32_t target) {
  missing_.assign(1, target);
  while (!missing_.empty()) {
    const uint32_t value = missing_.back();
    if (at_hand(value)) {
      missing_.pop_back();
      if (must_unpack(value)) {
        unpack(value);
      }
      continue;
    }
    const uint32_t op = graph_.values[value].op;
    const size_t before = missing_.size();
    for (const uint32_t input : graph_.ops[op].inputs) {
      if (!at_hand(input) || must_unpack(input)) {
        missing_.push_back(input);
      }
    }
    if (missing_.size() == before) {
      missing_.pop_back();
      replay(op);
    }
  }
}

void KeepSimulator::take(uint32_t hook) {
  const uint32_t value = graph_.hooks[hook];
  if (pinned_[hook] == 0) {
    pinned_[hook] = 1;
    pin(value);
  }
  bring_back(value);
  unpin_hook(hook);
  if (copies_any_) {
    schedule_.reads_ahead();
  }
}

void KeepSimulator::release(uint32_t hook) {
  const uint32_t value = graph_.hooks[hook];
  ValueState& state = states_[value];
  unpin_hook(hook);
  alive_[hook] = 0;
  if (--state.hooks > 0 || !state.held || (saved(value) && uses_.used_again(value))) {
    return;
  }
  if (state.pins > 0) {
    // A replay is about to read it.
    state.held = false;
    state.there = true;
  } else {
    drop(value);
  }
}

void KeepSimulator::forward_op(uint32_t index) {
  const StepGraph::Op& op = graph_.ops[index];
  const bool is_final = !final_.empty() && final_[index] != 0;
  const bool may_run_again =
      op.fate != Fate::kSaved && !is_final && !(op.fate == Fate::kOpen && is_saved_for_replays(kept_[index]));
  for (const uint32_t input : op.inputs) {
    if (may_run_again && saved(input)) {
      hold(input);
    }
  }
  if (copies_any_) {
    schedule_.passes(op.cost);
    forward_cost_ += in_backward_ ? 0 : op.cost;
  }
}

void KeepSimulator::note_waiting() {
  outcome_.forward_bytes = held_;
  outcome_.waiting_bytes = held_ + on_their_way();
}

KeepOutcome KeepSimulator::watch(absl::Span<const Keep> kept, KeepWatch& watch, bool with_final_ops) {
  const bool may_have_final_ops = std::exchange(may_have_final_ops_, may_have_final_ops_ && with_final_ops);
  watch_ = &watch;
  const KeepOutcome outcome = run(kept);
  watch_ = nullptr;
  may_have_final_ops_ = may_have_final_ops;
  return outcome;
}

KeepOutcome KeepSimulator::run(absl::Span<const Keep> kept) {
  kept_ = kept;
  final_ = final_ops(kept);
  states_.assign(graph_.values.size(), {});
  needed_.assign(graph_.ops.size(), 0);
  alive_.assign(graph_.hooks.size(), 0);
  pinned_.assign(graph_.hooks.size(), 0);
  held_ = away_ = 0;
  outcome_ = {};
  outcome_.uses.resize(graph_.forms.size());
  in_backward_ = false;
  start_schedule();
  for (size_t i = 0; i < graph_.events.size(); ++i) {
    const Event& event = graph_.events[i];
    if (watch_ != nullptr) {
      watch_->before_event(static_cast<uint32_t>(i));
    }
    switch (event.kind) {
      case Event::kRuns:
        forward_op(event.index);
        break;
      case Event::kWanted: {
        const uint32_t value = graph_.hooks[event.index];
        alive_[event.index] = 1;
        if (copies_any_) {
          wanted_at_[event.index] = forward_cost_;
        }
        ++states_[value].hooks;
        if (keeps(value)) {
          hold(value);
        }
        break;
      }
      case Event::kBackward:
        if (!in_backward_) {
          note_waiting();
          in_backward_ = true;
        }
        begin_backward();
        break;
      case Event::kTaken:
        pass_until(event.index);
        take(event.index);
        break;
      case Event::kReleased:
        release(event.index);
        break;
      case Event::kDies:
        break;
    }
    for (const uint32_t value : uses_.ends_at(i)) {
      if (states_[value].held && saved(value)) {
        drop(value);
      }
    }
    if (watch_ != nullptr) {
      watch_->after_event(static_cast<uint32_t>(i));
    }
  }
  if (!in_backward_) {
    note_waiting();
  }
  outcome_.total_bytes = bytes_in_flight(graph_.in_flight, outcome_.waiting_bytes, outcome_.peak_bytes);
  if (copies_any_) {
    // The queues are one for all forms behind them, and so is the waiting, which the first of these has.
    const auto first = std::find(graph_.forms.begin(), graph_.forms.end(), StepGraph::Queue::kCopies);
    outcome_.uses[first - graph_.forms.begin()].cost = schedule_.wait(copies_);
  }
  return outcome_;
}

}  // namespace ac2::internal
