// How many bytes must be free for a value to come back when nothing that can be dropped is there.
//
//   ReplayNeeds needs;
//   needs.note(graph, node, is_there);         // after the node and its results were added to the graph
//   needs.bytes_for(graph, value);             // beside what is held of values that `is_there` says yes to
//   needs.order_for(graph, node, is_there);    // in which to gather what the node takes, so that they suffice
//
// The order matters. To add a residual, x + f(x), f(x) first would need x again behind it: x must be gathered first and
// stay. Two products of one normalised h need h beside the first of them, or all that made h once more. So each node
// has a *gate*: the nearest value through which all that it takes was computed. The gate is gathered first, and stays
// while the inputs are gathered one after the other, each from the gate or from what was gathered before.
//
// The bytes are those of that way of gathering, and so enough. They are the least for a graph that is a tree. Which
// values are there is asked once, when the node is noted. A node that has been noted does not change later.
//
// Threads: not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "ac2/internal/eviction/evictor_graph.h"
#include "ac2/internal/eviction/evictor_ids.h"

namespace ac2::internal {

class ReplayNeeds {
 public:
  using Order = absl::InlinedVector<ValueId, 4>;

  // `is_there(ValueId)`: the value is not dropped, whatever happens, so that its bytes count elsewhere.
  template <class IsThere>
  void note(const EvictorGraph& graph, NodeId node, IsThere&& is_there) {
    note_missing(graph, node, missing_inputs(graph, node, is_there));
  }
  // 0 for a value from outside, and for one whose node was not noted.
  int64_t bytes_for(const EvictorGraph& graph, ValueId value) const;
  template <class IsThere>
  Order order_for(const EvictorGraph& graph, NodeId node, IsThere&& is_there) const {
    return order_of(graph, node, missing_inputs(graph, node, is_there));
  }
  // A number that is larger for a node that was noted later.
  uint64_t age(NodeId node) const { return node < plans_.size() ? plans_[node].number : 0; }

 private:
  // How a node is replayed.
  struct Plan {
    ValueId gate = kNoId;
    uint64_t gate_number = 0;  // ids are reused: the number of the gate's node
    uint64_t number = 0;       // 0: not noted
    int64_t beyond = 0;        // bytes for the inputs and the results, beside the gate
    int64_t bytes = 0;         // for all of it
  };
  // The inputs in the order in which they are gathered, and what that takes at most, beside `gate`.
  struct Gathering {
    Order order;
    int64_t bytes = 0;
  };

  template <class IsThere>
  static Order missing_inputs(const EvictorGraph& graph, NodeId node, IsThere& is_there) {
    Order missing;
    for (const EvictorGraph::Input& input : graph.node(node).inputs) {
      if (graph.value(input.value).producer != kNoId && !is_there(input.value)) {
        missing.push_back(input.value);
      }
    }
    return missing;
  }
  void note_missing(const EvictorGraph& graph, NodeId node, const Order& missing);
  Order order_of(const EvictorGraph& graph, NodeId node, const Order& missing) const;

  const Plan* plan_of(const EvictorGraph& graph, ValueId value) const;
  // kNoId if there is none.
  ValueId gate_of(const EvictorGraph& graph, ValueId value) const;
  ValueId common_gate(const EvictorGraph& graph, const Order& values) const;
  // For `value` alone while `there` stay.
  int64_t bytes_beside(const EvictorGraph& graph, ValueId value, const Order& there) const;
  Gathering gather(const EvictorGraph& graph, Order order, ValueId gate, int64_t results) const;
  // The better of a few orders.
  Gathering best_gathering(const EvictorGraph& graph, const Order& missing, ValueId gate, int64_t results) const;

  std::vector<Plan> plans_;  // by node
  uint64_t number_ = 0;
};

}  // namespace ac2::internal
