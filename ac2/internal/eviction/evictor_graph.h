// A program as the evictor knows it: values with a size, the nodes that make values from others, which values are
// resident (their bytes are there now), and which are needed.
//
//   EvictorGraph graph;
//   const ValueId input = graph.add_outside(bytes);
//   const ValueId result = graph.add_result(graph.add_node(cost, {input}), bytes);
//   graph.set_resident(result);
//   graph.add_hook(result);     // result is needed
//   graph.set_absent(result);   // its node must run again, so that input is needed too
//
// A value is *needed* if a hook wants it, or if a node that takes it must run again. A node must run again if it has a
// needed result that is not resident. That is kept up to date change by change. A change walks over the nodes whose
// need it turns and over no others, in loops instead of recursion: a chain may be a million nodes long.
//
// The same calls give the same ids. Misuse throws std::logic_error. Threads: not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "ac2/internal/eviction/evictor_ids.h"

namespace ac2::internal {

class EvictorGraph {
 public:
  // A node that takes a value, and the number of the input as which it does.
  struct Use {
    NodeId node = kNoId;
    uint32_t input = 0;
  };
  // A value that a node takes, and the position of that use in the value's `uses`.
  struct Input {
    ValueId value = kNoId;
    uint32_t use = 0;
  };
  struct Value {
    int64_t bytes = 0;
    NodeId producer = kNoId;  // kNoId: from outside, so that it cannot be computed again
    int32_t hooks = 0;
    int32_t needs = 0;  // hooks, plus nodes among `uses` that must run again
    bool resident = false;
    bool exists = false;
    absl::InlinedVector<Use, 2> uses;
  };
  struct Node {
    double cost = 0;
    int32_t missing = 0;                   // needed results that are absent; while positive the node must run again
    absl::InlinedVector<Input, 2> inputs;  // each value once
    absl::InlinedVector<ValueId, 1> results;
  };

  ValueId add_outside(int64_t bytes);
  NodeId add_node(double cost, absl::Span<const ValueId> inputs);
  // The value is absent until set_resident().
  ValueId add_result(NodeId node, int64_t bytes);
  // No hook may want the value and no node may take it. A node goes with the last of its results.
  void forget(ValueId value);
  // From now on the value, which must be resident, is one from outside.
  void make_outside(ValueId value);

  void set_resident(ValueId value);
  // A value from outside may become absent only while it is not needed, because it cannot come back.
  void set_absent(ValueId value);
  void add_hook(ValueId value);
  void remove_hook(ValueId value);

  const Value& value(ValueId id) const { return values_[id]; }
  const Node& node(NodeId id) const { return nodes_[id]; }
  // All ids are below these.
  size_t value_limit() const { return values_.size(); }
  size_t node_limit() const { return nodes_.size(); }

  // How many needed values are absent.
  int64_t missing() const { return missing_; }
  // The summed cost of the nodes that must run again.
  double missing_cost() const { return missing_cost_; }
  // Of all values, resident or not.
  int64_t bytes() const { return bytes_; }
  bool is_needed(ValueId id) const { return values_[id].needs > 0; }
  // Values that were resident when they ceased to be needed, in the order of the changes. A value may stand here twice.
  // The caller clears the list.
  std::vector<ValueId>& turned_unneeded() { return turned_unneeded_; }

 private:
  // A result of `node` begins, or ceases, to be both needed and absent. Puts the inputs whose need that changes into
  // work_, for run_gains() or run_losses().
  void begin_missing(NodeId node);
  void end_missing(NodeId node);
  // Adds one to the `needs` of each value in work_, or takes one off, and does the same for what follows from that.
  void run_gains();
  void run_losses();
  void remove_node(NodeId node);
  void detach_producer(ValueId value);
  ValueId new_value(int64_t bytes);

  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<ValueId> free_values_;
  std::vector<NodeId> free_nodes_;
  std::vector<ValueId> work_;  // values whose `needs` are about to change by one
  std::vector<ValueId> turned_unneeded_;
  int64_t missing_ = 0;
  double missing_cost_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace ac2::internal
