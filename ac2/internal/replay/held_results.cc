#include "ac2/internal/replay/held_results.h"

#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <cstddef>

namespace ac2::internal {

namespace {

// Whether all results that count on a replay have been replayed.
bool all_replayed(const Node& node) {
  return std::all_of(node.outputs.begin(), node.outputs.end(), [](const NodeOutput& output) {
    const Value* value = output.value;
    return value == nullptr || !value->counts_on_replay() || value->is_replayed();
  });
}

size_t bytes_of_recomputed_results(const Node& node) {
  size_t bytes = 0;
  for (const NodeOutput& output : node.outputs) {
    bytes += output.value != nullptr && output.value->counts_on_replay() ? output.value->nbytes() : 0;
  }
  return bytes;
}

// The bytes that would be freed if the node needed its inputs no more.
size_t bytes_of_own_inputs(const Node& node) {
  size_t bytes = 0;
  for (auto input = node.inputs.begin(); input != node.inputs.end(); ++input) {
    const Value* value = input->value;
    const auto is_it = [value](const NodeInput& other) { return other.value == value; };
    if (value == nullptr || value->is_pinned() || !value->is_held_by_us_alone() ||
        std::any_of(node.inputs.begin(), input, is_it)) {
      continue;
    }
    if (value->is_used_only_by(std::count_if(node.inputs.begin(), node.inputs.end(), is_it))) {
      bytes += value->nbytes();
    }
  }
  return bytes;
}

}  // namespace

void hold_results_instead_of_inputs(LockedTape& tape, Node* node) {
  // A budget drops values by itself, and must know what made them.
  if (torch::autograd::get_current_graph_task_keep_graph() || tape.budget().get() != nullptr ||
      tape.bytes().replays_communicate() || !all_replayed(*node)) {
    return;
  }
  const size_t freed = bytes_of_own_inputs(*node);
  if (freed == 0 || freed < bytes_of_recomputed_results(*node)) {
    return;
  }
  for (const NodeOutput& output : node->outputs) {
    if (output.value != nullptr && output.value->counts_on_replay()) {
      tape.decisions().save_replayed(output.value);
    }
  }
}

}  // namespace ac2::internal
