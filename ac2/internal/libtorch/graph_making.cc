#include "ac2/internal/libtorch/graph_making.h"

#include <torch/csrc/autograd/graph_task.h>

namespace ac2::internal {

namespace {

struct Seen {
  int graph_task = -1;
  bool makes_graph = false;
};

thread_local Seen last_seen;

}  // namespace

bool makes_graph(int graph_task, bool grad_mode) {
  if (graph_task == -1) {
    return false;
  }
  Seen& seen = last_seen;
  if (seen.graph_task != graph_task) {
    seen = {graph_task, grad_mode};
  } else if (!seen.makes_graph) {
    // The first look may have fallen into a function that had turned grad mode off.
    seen.makes_graph = grad_mode && torch::autograd::get_current_graph_task_keep_graph();
  }
  return seen.makes_graph;
}

}  // namespace ac2::internal
