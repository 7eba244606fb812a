// What the evictor knows of a program: values with a size, the ops that make one from others, which values have their
// bytes now, and which are needed. No tensors, no LibTorch.
//
// A value is *needed* if somebody holds it, or if an op that takes it must run again: one that has a needed result
// without bytes. That is kept up to date change by change. Each change walks over the ops whose need it turns, and
// those alone; in loops, so that a chain may be a million ops long.
//
// Ids are small numbers that are used again after forget(); the same calls give the same ids. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"

namespace ac2::internal {

using ValueId = uint32_t;
using NodeId = uint32_t;
inline constexpr uint32_t kNoId = ~uint32_t{0};

class EvictorGraph {
 public:
  // A node that takes a value, and as which of its inputs.
  struct Use {
    NodeId node = kNoId;
    uint32_t input = 0;
  };
  // A value that a node takes, and where that is noted in the value's uses.
  struct Input {
    ValueId value = kNoId;
    uint32_t use = 0;
  };
  struct Value {
    int64_t bytes = 0;
    NodeId producer = kNoId;  // kNoId: from outside, cannot be computed again
    int32_t holders = 0;
    int32_t needs = 0;  // holders, and nodes among `uses` that must run again
    bool resident = false;
    bool exists = false;
    absl::InlinedVector<Use, 2> uses;
  };
  struct Node {
    double cost = 0;
    int32_t missing = 0;                   // needed results without bytes; while positive the node must run again
    absl::InlinedVector<Input, 2> inputs;  // each value once
    absl::InlinedVector<ValueId, 1> results;
  };

  ValueId add_outside(int64_t bytes);
  NodeId add_node(double cost, absl::Span<const ValueId> inputs);
  // Without bytes until set_resident().
  ValueId add_result(NodeId node, int64_t bytes);
  // Nobody holds the value and no node takes it. A node goes with the last of its results.
  void forget(ValueId value);

  void set_resident(ValueId value);
  // A value from outside may be absent only while it is not needed: it will not come back.
  void set_absent(ValueId value);
  void add_holder(ValueId value);
  void remove_holder(ValueId value);

  const Value& value(ValueId id) const { return values_[id]; }
  const Node& node(NodeId id) const { return nodes_[id]; }
  // Ids are below these.
  size_t value_limit() const { return values_.size(); }
  size_t node_limit() const { return nodes_.size(); }

  // How many needed values have no bytes.
  int64_t missing() const { return missing_; }
  bool is_needed(ValueId id) const { return values_[id].needs > 0; }
  // No longer needed since the last call, and with bytes then. In the order of the changes; may repeat.
  std::vector<ValueId>& turned_unneeded() { return turned_unneeded_; }

 private:
  // The change that follows when a result of `node` begins or ceases to be needed and without bytes.
  void begin_missing(NodeId node);
  void end_missing(NodeId node);
  void run_gains();
  void run_losses();
  void remove_node(NodeId node);
  ValueId new_value(int64_t bytes);

  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<ValueId> free_values_;
  std::vector<NodeId> free_nodes_;
  std::vector<ValueId> work_;  // values whose `needs` is about to change by one
  std::vector<ValueId> turned_unneeded_;
  int64_t missing_ = 0;
};

}  // namespace ac2::internal
