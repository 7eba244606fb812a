#include "ac2/internal/planning/min_cut.h"

#include <algorithm>

namespace ac2::internal {

void MinCut::add_edge(uint32_t from, uint32_t to, double capacity) {
  edges_of_[from].push_back(static_cast<uint32_t>(edges_.size()));
  edges_.push_back({to, capacity});
  edges_of_[to].push_back(static_cast<uint32_t>(edges_.size()));
  edges_.push_back({from, 0});
}

bool MinCut::find_levels(uint32_t source, uint32_t sink) {
  level_.assign(edges_of_.size(), -1);
  level_[source] = 0;
  std::vector<uint32_t> queue{source};
  for (size_t i = 0; i < queue.size(); ++i) {
    for (const uint32_t id : edges_of_[queue[i]]) {
      const Edge& edge = edges_[id];
      if (edge.left > 0 && level_[edge.to] < 0) {
        level_[edge.to] = level_[queue[i]] + 1;
        queue.push_back(edge.to);
      }
    }
  }
  return level_[sink] >= 0;
}

bool MinCut::augment(uint32_t source, uint32_t sink) {
  std::vector<uint32_t> path;  // edges
  uint32_t at = source;
  while (at != sink) {
    if (next_[at] < edges_of_[at].size()) {
      const uint32_t id = edges_of_[at][next_[at]];
      if (edges_[id].left > 0 && level_[edges_[id].to] == level_[at] + 1) {
        path.push_back(id);
        at = edges_[id].to;
      } else {
        ++next_[at];
      }
    } else if (path.empty()) {
      return false;
    } else {
      at = edges_[path.back() ^ 1].to;
      path.pop_back();
      ++next_[at];
    }
  }
  double flow = kInfinite;
  for (const uint32_t id : path) {
    flow = std::min(flow, edges_[id].left);
  }
  for (const uint32_t id : path) {
    // At least one becomes exactly zero, so that rounding errors cannot keep the loop in solve() going.
    edges_[id].left = edges_[id].left == flow ? 0 : edges_[id].left - flow;
    edges_[id ^ 1].left += flow;
  }
  return true;
}

void MinCut::solve(uint32_t source, uint32_t sink) {
  while (find_levels(source, sink)) {
    next_.assign(edges_of_.size(), 0);
    while (augment(source, sink)) {
    }
  }
}

}  // namespace ac2::internal
