#include "ac2/internal/replay/kept_for_next.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <cstddef>

namespace ac2::internal {

namespace {

// The node that backward is in has an edge along which this backward computes no gradient.
bool runs_again() {
  if (!torch::autograd::get_current_graph_task_keep_graph()) {
    return false;
  }
  const auto node = torch::autograd::get_current_node();
  if (node == nullptr) {
    return false;
  }
  for (size_t edge = 0; edge < node->num_outputs(); ++edge) {
    if (node->next_edge(edge).is_valid() && !node->task_should_compute_output(edge)) {
      return true;
    }
  }
  return false;
}

// A budget decides by itself, and must know what made a value that it may drop.
bool may_be_kept(LockedTape& tape, const Value& value) {
  return value.is_replayed() && value.counts_on_replay() && tape.budget().get() == nullptr;
}

}  // namespace

void keep_for_next_backward(LockedTape& tape, Value* value) {
  if (may_be_kept(tape, *value) && runs_again()) {
    tape.decisions().save_replayed(value);
  }
}

void keep_for_next_backward(LockedTape& tape) {
  for (TapeHook* hook = tape.hooks().first(); hook != nullptr; hook = hook->next()) {
    if (hook->is_pinned() && may_be_kept(tape, *hook->value())) {
      tape.decisions().save_replayed(hook->value());
    }
  }
}

}  // namespace ac2::internal
