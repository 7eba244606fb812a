// The part of Tape that tells others about it.
#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "ac2/internal/saved_tensor_hook.h"
#include "ac2/internal/tape.h"

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
  for (const Value* value : ring_) {
    visit(value);
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const NodeInput& input : nodes[i]->inputs) {
      visit(input.value);
    }
  }
  std::sort(nodes.begin(), nodes.end(), [](const Node* a, const Node* b) { return a->index < b->index; });
  return nodes;
}

std::vector<NodeSummary> Tape::summarize() {
  const Lock lock(*this);
  sweep_all();
  std::vector<NodeSummary> summaries;
  for (const Node* node : reachable_nodes()) {
    NodeSummary& summary = summaries.emplace_back();
    summary.index = node->index;
    summary.name = node->facts->name;
    summary.decision = node->decision;
    summary.replays = node->replays;
    for (const NodeOutput& output : node->outputs) {
      if (output.value != nullptr) {
        summary.output_bytes += static_cast<int64_t>(output.value->nbytes);
        summary.saved_bytes += output.value->held ? static_cast<int64_t>(output.value->nbytes) : 0;
      }
    }
    for (const NodeInput& input : node->inputs) {
      if (input.value != nullptr) {
        summary.inputs.push_back(input.value->producer != nullptr ? input.value->producer->index : -1);
      }
    }
  }
  return summaries;
}

}  // namespace ac2::internal
