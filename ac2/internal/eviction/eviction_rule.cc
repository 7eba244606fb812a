#include "ac2/internal/eviction/eviction_rule.h"

#include <algorithm>
#include <cmath>

namespace ac2::internal {

void EvictionRule::begin_walk(const EvictorGraph& graph) {
  value_marks_.resize(graph.value_limit(), 0);
  node_marks_.resize(graph.node_limit(), 0);
  if (++walk_ == 0) {
    std::fill(value_marks_.begin(), value_marks_.end(), 0);
    std::fill(node_marks_.begin(), node_marks_.end(), 0);
    walk_ = 1;
  }
  work_.clear();
}

bool EvictionRule::visit_value(ValueId id) {
  if (value_marks_[id] == walk_) {
    return false;
  }
  value_marks_[id] = walk_;
  return true;
}

bool EvictionRule::visit_node(NodeId id) {
  if (node_marks_[id] == walk_) {
    return false;
  }
  node_marks_[id] = walk_;
  return true;
}

double EvictionRule::cost_of_dropping(const EvictorGraph& graph, ValueId root) {
  begin_walk(graph);
  double forced = 0;
  double shared = 0;
  double apart = 0;
  double bytes = static_cast<double>(graph.value(root).bytes);

  visit_value(root);
  const auto visit_inputs = [&](const EvictorGraph::Node& node) {
    for (const EvictorGraph::Input& input : node.inputs) {
      if (!graph.value(input.value).resident && visit_value(input.value)) {
        work_.push_back(input.value);
      }
    }
  };
  const NodeId producer = graph.value(root).producer;
  visit_node(producer);
  if (graph.node(producer).missing == 0) {
    forced += graph.node(producer).cost;
  } else {
    // When the op runs for its other results, this one stays only if there is room for all of them.
    bool is_untaken = graph.value(root).uses.empty();
    for (const ValueId result : graph.node(producer).results) {
      if (!graph.value(result).resident && graph.is_needed(result)) {
        bytes += static_cast<double>(graph.value(result).bytes);
        is_untaken = is_untaken && graph.value(result).uses.empty();
      }
    }
    (is_untaken ? apart : shared) += graph.node(producer).cost;
  }
  visit_inputs(graph.node(producer));
  while (!work_.empty()) {
    const EvictorGraph::Value& value = graph.value(work_.back());
    work_.pop_back();
    bytes += static_cast<double>(value.bytes);
    // A value from outside that is gone is not counted: nothing that needs it can be dropped.
    if (value.producer == kNoId || !visit_node(value.producer)) {
      continue;
    }
    const EvictorGraph::Node& node = graph.node(value.producer);
    (node.missing == 0 ? forced : shared) += node.cost;
    visit_inputs(node);
  }

  work_.push_back(root);
  while (!work_.empty()) {
    const EvictorGraph::Value& value = graph.value(work_.back());
    work_.pop_back();
    for (const EvictorGraph::Use& use : value.uses) {
      const EvictorGraph::Node& node = graph.node(use.node);
      if (node.missing == 0) {
        continue;
      }
      if (visit_node(use.node)) {
        shared += node.cost;
      }
      for (const ValueId result : node.results) {
        const EvictorGraph::Value& descendant = graph.value(result);
        if (!descendant.resident && descendant.needs > 0 && visit_value(result)) {
          bytes += static_cast<double>(descendant.bytes);
          work_.push_back(result);
        }
      }
    }
  }
  return forced + constants_.share * (apart + std::min(1.0, bytes / static_cast<double>(budget_)) * shared);
}

void EvictionRule::affected_by(const EvictorGraph& graph, ValueId root, std::vector<ValueId>& affected) {
  begin_walk(graph);
  size_t left = kMaxAffected;
  // Notes a value that is there, and goes on through one that is absent.
  const auto meet = [&](ValueId id) {
    if (left == 0 || !visit_value(id)) {
      return;
    }
    --left;
    if (graph.value(id).resident) {
      affected.push_back(id);
    } else {
      work_.push_back(id);
    }
  };
  visit_value(root);
  const auto up = [&](ValueId id) {
    const NodeId producer = graph.value(id).producer;
    if (producer != kNoId) {
      for (const EvictorGraph::Input& input : graph.node(producer).inputs) {
        meet(input.value);
      }
    }
  };
  const auto down = [&](ValueId id) {
    for (const EvictorGraph::Use& use : graph.value(id).uses) {
      for (const ValueId result : graph.node(use.node).results) {
        meet(result);
      }
      if (left == 0) {
        return;
      }
    }
  };
  up(root);
  while (!work_.empty()) {
    const ValueId id = work_.back();
    work_.pop_back();
    up(id);
  }
  left = kMaxAffected;
  if (graph.value(root).producer != kNoId) {
    for (const ValueId sibling : graph.node(graph.value(root).producer).results) {
      meet(sibling);
    }
    work_.clear();
  }
  down(root);
  while (!work_.empty()) {
    const ValueId id = work_.back();
    work_.pop_back();
    down(id);
  }
}

double EvictionRule::most_weight(double time) const {
  return std::max(weight(0, time), 1.0);  // far away it is next to 1
}

double EvictionRule::weight(double distance, double time) const {
  // Plus one unit of the clock, so that nothing is divided by 0.
  const double horizon = constants_.horizon * time + 1;
  const double weight = (distance + constants_.floor * horizon + 1) / (distance + horizon);
  return constants_.power == 1 ? weight : std::pow(weight, constants_.power);
}

}  // namespace ac2::internal
