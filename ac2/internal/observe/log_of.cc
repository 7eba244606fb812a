#include "ac2/internal/observe/log_of.h"

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "ac2/internal/budget/budget.h"
#include "ac2/internal/observe/module_names.h"
#include "ac2/internal/observe/shared_bytes.h"
#include "ac2/internal/observe/whole_tensor.h"

namespace ac2::internal {

namespace {

// A log of the nodes that can be reached, in the order in which they ran.
class ReachableLog {
 public:
  explicit ReachableLog(LockedTape& tape) : nodes_(tape.reachable_nodes()) {
    for (const Node* node : nodes_) {
      op_places_.emplace(node, static_cast<int64_t>(op_places_.size()));
    }
    for (const Node* node : nodes_) {
      add(*node);
    }
    for (const TapeHook* hook = tape.hooks().first(); hook != nullptr; hook = hook->next()) {
      const int64_t value = place(*hook->value());
      note_shape(value, hook->meta());
      note_shared(*hook->value());
      log_.values[value].whole = kind_of_whole_tensor(*hook->value());
    }
  }

  TraceLog take() { return std::move(log_); }

 private:
  void add(const Node& node) {
    TraceLog::Op& op = log_.ops.emplace_back();
    op.index = node.index;
    op.name = node.facts->name;
    op.is_node = true;
    op.replayable = node.replayable;
    op.decision = node.decision;
    op.replays = node.replays;
    for (const NodeInput& input : node.inputs) {
      if (input.value != nullptr) {
        op.inputs.push_back(place(*input.value));
        note_shape(op.inputs.back(), input.meta);
        note_shared(*input.value);
      }
    }
    for (const NodeOutput& output : node.outputs) {
      if (output.value != nullptr) {
        op.outputs.push_back(place(*output.value));
      }
    }
  }

  int64_t place(const Value& value) {
    const auto [it, is_new] = value_places_.emplace(&value, static_cast<int64_t>(log_.values.size()));
    if (is_new) {
      TraceLog::Value& added = log_.values.emplace_back();
      added.op = value.producer() == nullptr ? TraceLog::kNone : op_places_.at(value.producer());
      added.bytes = value.bytes();
      added.saved = value.decided() == Decided::kSave;
      added.source = value.is_tagged() ? TraceLog::Source::TAG : TraceLog::Source::OP;
      added.held_bytes = value.held_bytes();
      added.last_held_bytes = added.held_bytes;
      added.hooks = value.hooks();
      added.all_hooks = value.hooks();
      added.name = value.name() != nullptr ? *value.name() : "";
      if (value.producer() == nullptr) {
        added.origin = value.weak_original();
      }
    }
    return it->second;
  }

  void note_shared(const Value& value) {
    if (is_shared(value) && shared_.insert(&value).second) {
      log_.shared_bytes += value.bytes();
    }
  }

  void note_shape(int64_t place, const TensorMeta* meta) {
    std::string& shape = log_.values[place].shape;
    if (shape.empty() && meta != nullptr) {
      shape = shape_text(meta->sizes(), meta->dtype());
    }
  }

  const std::vector<Node*> nodes_;
  absl::flat_hash_map<const Node*, int64_t> op_places_;
  absl::flat_hash_map<const Value*, int64_t> value_places_;
  absl::flat_hash_set<const Value*> shared_;
  TraceLog log_;
};

TraceLog::Bound bound_of(const Budget& budget) {
  using Kind = TraceLog::Bound::Kind;
  const BudgetLimit limit = budget.limit();
  if (budget.peak()) {
    return {Kind::PEAK, budget.peak()->bytes(), &budget};
  }
  if (budget.has_no_number() && limit.soft) {
    return {Kind::WITHOUT_NUMBER, limit.bytes == LearnedLimit::kNone ? TraceLog::kNone : limit.bytes, &budget};
  }
  return {limit.soft ? Kind::SOFT : Kind::STRICT, limit.bytes, &budget};
}

}  // namespace

TraceLog log_of(Tape& tape) {
  // Under a lock of its own, so that everything that the sweep frees is gone before the log is made.
  const TraceStats stats = tape.stats();
  const StorageNames names = storage_names();
  TraceLog log;
  {
    const Tape::Lock locked(tape);
    const TraceLog* kept = nullptr;
    locked->observers().tell([&](const Observer& observer) { kept = kept == nullptr ? observer.log() : kept; });
    log = kept != nullptr ? *kept : ReachableLog(*locked).take();
    log.shared_bytes = log.events.empty() ? log.shared_bytes : log.events.back().shared_bytes;
    log.verifies = locked->observers().any([](const Observer& observer) { return observer.checks_replays(); });
    if (const Budget* budget = locked->budget().get()) {
      log.bound = bound_of(*budget);
    }
  }
  log.stats = stats;
  name_places(log, names);
  return log;
}

}  // namespace ac2::internal
