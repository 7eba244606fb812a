#include "ac2/internal/eviction/evictor_graph.h"

#include <algorithm>
#include <utility>

#include "ac2/internal/eviction/evictor_check.h"

namespace ac2::internal {

ValueId EvictorGraph::new_value(int64_t bytes) {
  evictor_check(bytes >= 0, "a value has a negative size");
  ValueId id = static_cast<ValueId>(values_.size());
  if (free_values_.empty()) {
    values_.emplace_back();
  } else {
    id = free_values_.back();
    free_values_.pop_back();
  }
  Value& value = values_[id];
  value.bytes = bytes;
  bytes_ += bytes;
  value.producer = kNoId;
  value.exists = true;
  return id;
}

ValueId EvictorGraph::add_outside(int64_t bytes) {
  const ValueId id = new_value(bytes);
  values_[id].resident = true;
  return id;
}

NodeId EvictorGraph::add_node(double cost, absl::Span<const ValueId> inputs) {
  evictor_check(cost >= 0, "a node has a negative cost");
  NodeId id = static_cast<NodeId>(nodes_.size());
  if (free_nodes_.empty()) {
    nodes_.emplace_back();
  } else {
    id = free_nodes_.back();
    free_nodes_.pop_back();
  }
  Node& node = nodes_[id];
  node.cost = cost;
  for (const ValueId input : inputs) {
    Value& value = values_[input];
    evictor_check(value.exists, "a node takes a value that does not exist");
    // If this node takes the value already, that is the value's last use.
    if (!value.uses.empty() && value.uses.back().node == id) {
      continue;
    }
    value.uses.push_back({id, static_cast<uint32_t>(node.inputs.size())});
    node.inputs.push_back({input, static_cast<uint32_t>(value.uses.size() - 1)});
  }
  return id;
}

ValueId EvictorGraph::add_result(NodeId node, int64_t bytes) {
  const ValueId id = new_value(bytes);
  values_[id].producer = node;
  nodes_[node].results.push_back(id);
  return id;
}

void EvictorGraph::forget(ValueId id) {
  Value& value = values_[id];
  evictor_check(value.exists && value.hooks == 0 && value.uses.empty(), "a value is forgotten that is still used");
  bytes_ -= value.bytes;
  value.exists = false;
  value.resident = false;
  detach_producer(id);
  free_values_.push_back(id);
}

void EvictorGraph::make_outside(ValueId id) {
  evictor_check(values_[id].exists && values_[id].resident, "a value is to be from outside that is absent");
  detach_producer(id);
}

void EvictorGraph::detach_producer(ValueId id) {
  const NodeId producer = std::exchange(values_[id].producer, kNoId);
  if (producer == kNoId) {
    return;
  }
  auto& results = nodes_[producer].results;
  results.erase(std::find(results.begin(), results.end(), id));
  if (results.empty()) {
    remove_node(producer);
  }
}

void EvictorGraph::remove_node(NodeId id) {
  for (const Input& input : nodes_[id].inputs) {
    // The value's last use moves to where this one was.
    auto& uses = values_[input.value].uses;
    uses[input.use] = uses.back();
    nodes_[uses[input.use].node].inputs[uses[input.use].input].use = input.use;
    uses.pop_back();
  }
  nodes_[id].inputs.clear();
  free_nodes_.push_back(id);
}

void EvictorGraph::begin_missing(NodeId id) {
  Node& node = nodes_[id];
  ++missing_;
  if (node.missing++ == 0) {
    missing_cost_ += node.cost;
    for (const Input& input : node.inputs) {
      work_.push_back(input.value);
    }
  }
}

void EvictorGraph::end_missing(NodeId id) {
  Node& node = nodes_[id];
  --missing_;
  if (--node.missing == 0) {
    missing_cost_ -= node.cost;
    for (const Input& input : node.inputs) {
      work_.push_back(input.value);
    }
  }
}

void EvictorGraph::run_gains() {
  while (!work_.empty()) {
    Value& value = values_[work_.back()];
    work_.pop_back();
    if (value.needs++ == 0 && !value.resident) {
      evictor_check(value.producer != kNoId, "a value is needed that is absent and cannot be computed");
      begin_missing(value.producer);
    }
  }
}

void EvictorGraph::run_losses() {
  while (!work_.empty()) {
    const ValueId id = work_.back();
    Value& value = values_[id];
    work_.pop_back();
    if (--value.needs > 0) {
      continue;
    }
    if (value.resident) {
      turned_unneeded_.push_back(id);
    } else if (value.producer != kNoId) {
      end_missing(value.producer);
    }
  }
}

void EvictorGraph::add_hook(ValueId id) {
  ++values_[id].hooks;
  work_.push_back(id);
  run_gains();
}

void EvictorGraph::remove_hook(ValueId id) {
  evictor_check(values_[id].hooks > 0, "a hook is removed that was never added");
  --values_[id].hooks;
  work_.push_back(id);
  run_losses();
}

void EvictorGraph::set_resident(ValueId id) {
  Value& value = values_[id];
  if (value.resident) {
    return;
  }
  value.resident = true;
  if (value.needs == 0) {
    turned_unneeded_.push_back(id);
  } else {
    end_missing(value.producer);
    run_losses();
  }
}

void EvictorGraph::set_absent(ValueId id) {
  Value& value = values_[id];
  if (!value.resident) {
    return;
  }
  value.resident = false;
  if (value.needs > 0) {
    evictor_check(value.producer != kNoId, "a value becomes absent that is needed and cannot be computed");
    begin_missing(value.producer);
    run_gains();
  }
}

}  // namespace ac2::internal
