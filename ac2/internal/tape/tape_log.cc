// The part of Tape that tells others about it.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "ac2/internal/tape/offloader.h"
#include "ac2/internal/tape/saved_tensor_hook.h"
#include "ac2/internal/tape/tape.h"
#include "ac2/internal/tape/timeline.h"

namespace ac2::internal {

TraceStats Tape::stats() {
  const Lock lock(*this);
  sweep_all();
  TraceStats stats;
  stats.recorded_ops = recorded_ops_.load(std::memory_order_relaxed);
  stats.live_nodes = live_nodes_;
  stats.saved_bytes = saved_bytes_;
  stats.evicted_values = evicted_values;
  stats.recomputed_ops = recomputed_ops;
  stats.recomputed_bytes = recomputed_bytes_;
  stats.copied_bytes = copied_bytes;
  stats.offloaded_bytes = offloaded_bytes_;
  stats.not_offloaded_bytes = owned_offloader_ ? owned_offloader_->not_offloaded_bytes() : 0;
  return stats;
}

std::vector<Node*> Tape::reachable_nodes() const {
  std::vector<Node*> nodes;
  absl::flat_hash_set<const Node*> seen;
  const auto visit = [&](const Value* value) {
    if (value != nullptr && value->producer != nullptr && seen.insert(value->producer).second) {
      nodes.push_back(value->producer);
    }
  };
  for (const SavedTensorHook* hook = hooks_; hook != nullptr; hook = hook->next()) {
    visit(hook->value_);
  }
  current_.for_each(visit);
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const NodeInput& input : nodes[i]->inputs) {
      visit(input.value);
    }
  }
  std::sort(nodes.begin(), nodes.end(), [](const Node* a, const Node* b) { return a->index < b->index; });
  return nodes;
}

// A timeline that begins within a region begins with what the region holds already.
void Tape::log_what_is_held() {
  absl::flat_hash_set<const Value*> seen;
  int64_t held = 0;
  const auto visit = [&](const Value* value) {
    const bool packed = value != nullptr && value->is_packed();
    if (value == nullptr || !(value->held || packed) || !seen.insert(value).second) {
      return;
    }
    const int64_t bytes = packed ? value->other->packed_bytes : static_cast<int64_t>(value->nbytes);
    held += bytes;
    owned_timeline_->changed(value, Timeline::Change::HOLD, bytes, held, recomputed_bytes_);
  };
  for (const SavedTensorHook* hook = hooks_; hook != nullptr; hook = hook->next()) {
    visit(hook->value_);
  }
  current_.for_each(visit);
  for (const Node* node : reachable_nodes()) {
    for (const NodeInput& input : node->inputs) {
      visit(input.value);
    }
  }
}

TraceLog Tape::log() {
  // Its own lock, and a full sweep.
  const TraceStats stats = this->stats();
  const Lock lock(*this);
  TraceLog log = owned_timeline_ ? owned_timeline_->log() : reachable_log();
  log.stats = stats;
  return log;
}

namespace {

// What was decided, as a timeline has it: a replayed result that is kept in place of what only that needed is saved
// now.
bool is_decided_saved(const Value& value) {
  const Node* node = value.producer;
  const bool kept_replay = node != nullptr && node->replays > 0 && value.private_bytes;
  return value.saved && !(kept_replay && !PolicyDecision(node->decision).saves());
}

}  // namespace

TraceLog Tape::reachable_log() const {
  TraceLog log;
  const std::vector<Node*> nodes = reachable_nodes();
  absl::flat_hash_map<const Node*, int64_t> places;
  for (const Node* node : nodes) {
    places.emplace(node, static_cast<int64_t>(places.size()));
  }
  absl::flat_hash_map<const Value*, int64_t> value_places;
  const auto place = [&](const Value* value) {
    const auto [it, is_new] = value_places.emplace(value, static_cast<int64_t>(log.values.size()));
    if (is_new) {
      TraceLog::Value& added = log.values.emplace_back();
      added.op = value->producer == nullptr ? TraceLog::kNone : places.at(value->producer);
      added.bytes = static_cast<int64_t>(value->nbytes);
      added.saved = is_decided_saved(*value);
      added.source = value->tagged ? TraceLog::Source::TAG : TraceLog::Source::OP;
      const bool packed = value->is_packed();
      added.held_bytes = packed ? value->other->packed_bytes : value->held ? added.bytes : 0;
      added.last_held_bytes = added.held_bytes;
      added.hooks = value->hooks;
      added.all_hooks = value->hooks;
    }
    return it->second;
  };
  const auto note_shape = [&](int64_t place, const TensorMeta* meta) {
    std::string& shape = log.values[place].shape;
    if (shape.empty() && meta != nullptr) {
      shape = shape_of(meta->sizes(), meta->dtype());
    }
  };
  for (const Node* node : nodes) {
    TraceLog::Op& op = log.ops.emplace_back();
    op.index = node->index;
    op.name = node->facts->name;
    op.is_node = true;
    op.replayable = node->replayable;
    op.decision = node->decision;
    op.replays = node->replays;
    for (const NodeInput& input : node->inputs) {
      if (input.value != nullptr) {
        op.inputs.push_back(place(input.value));
        note_shape(op.inputs.back(), input.meta);
      }
    }
    for (const NodeOutput& output : node->outputs) {
      if (output.value != nullptr) {
        op.outputs.push_back(place(output.value));
      }
    }
  }
  for (const SavedTensorHook* hook = hooks_; hook != nullptr; hook = hook->next()) {
    if (hook->value_ != nullptr) {
      note_shape(place(hook->value_), hook->meta_);
    }
  }
  return log;
}

}  // namespace ac2::internal
