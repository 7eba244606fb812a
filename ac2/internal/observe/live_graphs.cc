#include "ac2/internal/observe/live_graphs.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "ac2/internal/tape/live_tapes.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

namespace {

int64_t held_bytes(const Value& value) {
  if (value.is_managed()) {
    return 0;
  }
  if (value.is_packed()) {
    return value.held_bytes();
  }
  return value.is_held_in_a_storage() || value.is_there() ? value.bytes() : 0;
}

// The graphs of one tape: its nodes, joined where one takes what the other has computed.
class GraphsOfTape {
 public:
  explicit GraphsOfTape(LockedTape& tape) : nodes_(tape.reachable_nodes()), parents_(nodes_.size()) {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      indices_.emplace(nodes_[i], i);
      parents_[i] = i;
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      for (const NodeInput& input : nodes_[i]->inputs) {
        if (input.value == nullptr) {
          continue;
        }
        if (input.value->producer() == nullptr) {
          leaves_.insert(input.value);
        } else if (const auto producer = indices_.find(input.value->producer()); producer != indices_.end()) {
          parents_[graph_of(i)] = graph_of(producer->second);
        }
      }
    }
    for (const TapeHook* hook = tape.hooks().first(); hook != nullptr; hook = hook->next()) {
      const Value* value = hook->value();
      if (value == nullptr || value->producer() == nullptr) {
        continue;  // of a parameter, or of what became an anchor
      }
      if (const auto producer = indices_.find(value->producer()); producer != indices_.end()) {
        bytes_.try_emplace(graph_of(producer->second), 0);
      }
    }
  }

  void add_to(LiveGraphs& graphs) {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const auto graph = bytes_.find(graph_of(i));
      if (graph == bytes_.end()) {
        continue;
      }
      for (const NodeOutput& output : nodes_[i]->outputs) {
        graph->second += output.value != nullptr ? held_bytes(*output.value) : 0;
      }
    }
    graphs.count += static_cast<int64_t>(bytes_.size());
    for (const auto& [graph, bytes] : bytes_) {
      graphs.bytes += bytes;
      graphs.most_bytes = std::max(graphs.most_bytes, bytes);
    }
    for (const Value* leaf : leaves_) {
      const int64_t bytes = held_bytes(*leaf);
      graphs.leaves += bytes > 0 ? 1 : 0;
      graphs.leaf_bytes += bytes;
    }
  }

 private:
  size_t graph_of(size_t node) {
    while (parents_[node] != node) {
      parents_[node] = parents_[parents_[node]];
      node = parents_[node];
    }
    return node;
  }

  const std::vector<Node*> nodes_;
  std::vector<size_t> parents_;
  absl::flat_hash_map<const Node*, size_t> indices_;
  absl::flat_hash_map<size_t, int64_t> bytes_;  // by graph
  absl::flat_hash_set<const Value*> leaves_;
};

}  // namespace

LiveGraphs live_graphs() {
  LiveGraphs graphs;
  for_each_live_tape([&](Tape& tape) {
    const Tape::Lock locked(tape);
    GraphsOfTape(*locked).add_to(graphs);
  });
  return graphs;
}

}  // namespace ac2::internal
