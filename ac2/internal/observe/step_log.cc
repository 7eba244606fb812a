#include "ac2/internal/observe/step_log.h"

#include <algorithm>
#include <utility>

#include "ac2/internal/operators/op_facts.h"
#include "ac2/internal/tape/tape.h"
#include "ac2/internal/tape/tape_hook.h"

namespace ac2::internal {

using Event = StepGraph::Event;
using Fate = StepGraph::Fate;

namespace {

std::optional<c10::Device> device_of(const Value& value) {
  const auto storage = value.is_opaque() || value.is_managed() ? nullptr : value.lock_original();
  return storage ? std::optional(storage->device()) : std::nullopt;
}

Fate fate_of(const Node& node, const PolicyDecision& decision) {
  if (node.outputs[0].value->decided() == Decided::kSave) {
    return Fate::kSaved;
  }
  return decision.saves() ? Fate::kOpen : Fate::kRecomputed;
}

}  // namespace

uint32_t StepLog::id_of(const Value& value) {
  const auto [it, is_new] = ids_.emplace(&value, static_cast<uint32_t>(graph_.values.size()));
  if (is_new) {
    graph_.values.push_back({.bytes = static_cast<int64_t>(value.nbytes())});
    devices_.emplace_back();
    if (meter_ != nullptr) {
      meter_->meets(value);
    }
    storages_.emplace_back();
  }
  return it->second;
}

void StepLog::append(Event::Kind kind, uint32_t index) {
  if (meter_ != nullptr) {
    meter_->before_event();
  }
  graph_.events.push_back({kind, index});
}

StepGraph::Op* StepLog::op_of(const Value& value) {
  const auto it = ids_.find(&value);
  if (it == ids_.end() || graph_.values[it->second].op == StepGraph::kOutside) {
    return nullptr;
  }
  return &graph_.ops[graph_.values[it->second].op];
}

void StepLog::node_recorded(const Node& node, const PolicyDecision& decision, int64_t /*scope_id*/, double cost) {
  const auto index = static_cast<uint32_t>(graph_.ops.size());
  cost_ += cost;
  StepGraph::Op op{.cost = cost, .fate = fate_of(node, decision), .inputs = {}, .results = {}, .takes = {}};
  op.budgets_hold = op.fate == Fate::kRecomputed && !decision.is_must();
  for (const NodeInput& input : node.inputs) {
    if (input.value == nullptr) {
      continue;
    }
    const uint32_t id = id_of(*input.value);
    if (std::find(op.inputs.begin(), op.inputs.end(), id) == op.inputs.end()) {
      op.inputs.push_back(id);
    }
  }
  for (const NodeWrite& write : node.writes()) {
    if (write.old != nullptr) {
      op.takes.push_back(id_of(*write.old));
    }
  }
  for (const NodeOutput& output : node.outputs) {
    const uint32_t id = id_of(*output.value);
    graph_.values[id].op = index;
    devices_[id] = device_of(*output.value);
    storages_[id] = devices_[id] ? output.value->original_address() : nullptr;
    op.results.push_back(id);
  }
  graph_.ops.push_back(std::move(op));
  indices_.push_back(node.index);
  decided_within_.push_back(decision.is_must());
  append(Event::kRuns, index);
  if (meter_ != nullptr) {
    meter_->notes_op();
    for (const NodeOutput& output : node.outputs) {
      meter_->hands_out(*output.value, id_of(*output.value));
    }
  }
}

void StepLog::decided_again(const Value& value, const PolicyDecision& decision, DecidedBy /*by*/) {
  StepGraph::Op* op = op_of(value);
  // Which of an op's results it was makes no difference to the policy that a plan becomes.
  if (op != nullptr && value.producer()->replayable) {
    op->fate = decision.saves() ? Fate::kSaved : Fate::kRecomputed;
    op->budgets_hold = false;
  }
}

void StepLog::overwritten(const Value& value) {
  StepGraph::Op* op = op_of(value);
  if (op != nullptr && op->fate != Fate::kSaved) {
    op->fate = Fate::kRecomputed;
    op->budgets_hold = false;
  }
}

void StepLog::hook_added(const TapeHook& hook, const Value& value) {
  const auto index = static_cast<uint32_t>(graph_.hooks.size());
  graph_.hooks.push_back(id_of(value));
  hooks_[&hook] = index;
  append(Event::kWanted, index);
}

void StepLog::hook_taken(const TapeHook& hook, int graph_task) {
  const auto it = hooks_.find(&hook);
  if (it == hooks_.end()) {
    return;
  }
  if (graph_task != -1 && graph_task != graph_task_) {
    if (graph_task_ == -1) {
      look_outside();
    }
    graph_task_ = graph_task;
    append(Event::kBackward, 0);
  }
  append(Event::kTaken, it->second);
  if (meter_ != nullptr) {
    meter_->hands_out(*hook.value(), graph_.hooks[it->second]);
  }
}

void StepLog::look_outside() {
  for (const auto& [value, id] : ids_) {
    look_at(*value, id);
  }
}

void StepLog::look_at(const Value& value, uint32_t id) {
  if (value.producer() == nullptr && value.has_held_bytes()) {
    graph_.values[id].ours = value.is_packed() || value.is_held_by_us_alone();
  }
}

void StepLog::hook_removed(const TapeHook& hook, const Value& /*value*/) {
  const auto it = hooks_.find(&hook);
  if (it != hooks_.end()) {
    append(Event::kReleased, it->second);
    hooks_.erase(it);
  }
}

void StepLog::note_packed(const Value& value, uint32_t id) {
  const PackedForm* form = value.packed_form();
  if (form != nullptr && form->packed_bytes > 0) {
    graph_.values[id].bytes = form->packed_bytes;
    graph_.values[id].unpacked_bytes = static_cast<int64_t>(value.nbytes());
  }
}

void StepLog::before_drop(const Value& value) {
  const auto it = ids_.find(&value);
  if (it != ids_.end() && graph_task_ == -1) {
    look_at(value, it->second);
  }
}

void StepLog::value_died(const Value& value) {
  const auto it = ids_.find(&value);
  if (it == ids_.end()) {
    return;
  }
  note_packed(value, it->second);
  append(Event::kDies, it->second);
  if (meter_ != nullptr) {
    meter_->died(it->second);
  }
  ids_.erase(it);
}

void StepLog::bytes_changed(const ByteChange& change) {
  if (meter_ != nullptr && change.kind == ByteChange::Kind::kEvict) {
    meter_->is_disturbed();
  }
}

// The kernel of an op.
class StepLog::MeteredCall final : public CallObservation {
 public:
  MeteredCall(StepMeter& meter, Tape& tape) : meter_(meter), tape_(tape) {
    const Tape::Lock locked(tape_);
    meter_.op_begins();
  }
  void ran() override {
    const Tape::Lock locked(tape_);
    meter_.op_ended();
  }

 private:
  StepMeter& meter_;
  Tape& tape_;
};

std::unique_ptr<CallObservation> StepLog::observe_call(const OpFacts& facts, int64_t /*index*/) {
  return meter_ == nullptr || facts.is_view ? nullptr : std::make_unique<MeteredCall>(*meter_, *tape_);
}

void StepLog::append_backward() {
  auto& events = graph_.events;
  // Leaves out the last events: those of the step's local variables, which end with the step.
  while (!events.empty() && (events.back().kind == Event::kReleased || events.back().kind == Event::kDies)) {
    events.pop_back();
  }
  std::vector<uint8_t> alive(graph_.hooks.size());
  for (const Event& event : events) {
    if (event.kind == Event::kWanted || event.kind == Event::kReleased) {
      alive[event.index] = event.kind == Event::kWanted;
    }
  }
  events.push_back({Event::kBackward, 0});
  for (auto hook = static_cast<uint32_t>(alive.size()); hook-- > 0;) {
    if (alive[hook] != 0) {
      events.push_back({Event::kTaken, hook});
      events.push_back({Event::kReleased, hook});
    }
  }
}

StepGraph StepLog::take() {
  for (const auto& [value, id] : ids_) {
    note_packed(*value, id);
  }
  if (std::none_of(graph_.events.begin(), graph_.events.end(),
                   [](const Event& e) { return e.kind == Event::kTaken; })) {
    look_outside();
    append_backward();
  } else if (meter_ != nullptr) {
    readings_ = meter_->take();
  }
  return std::move(graph_);
}

}  // namespace ac2::internal
