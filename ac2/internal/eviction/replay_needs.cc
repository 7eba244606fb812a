#include "ac2/internal/eviction/replay_needs.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace ac2::internal {

namespace {

// A gate is looked for among so many gates, and an order among so many inputs. Beyond that the bytes told may be more
// than a replay takes.
constexpr int kMostGates = 128;
constexpr size_t kMostInputs = 16;

bool contains(const ReplayNeeds::Order& values, ValueId value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

int64_t bytes_of_results(const EvictorGraph& graph, NodeId node) {
  int64_t bytes = 0;
  for (const ValueId result : graph.node(node).results) {
    bytes += graph.value(result).bytes;
  }
  return bytes;
}

}  // namespace

const ReplayNeeds::Plan* ReplayNeeds::plan_of(const EvictorGraph& graph, ValueId value) const {
  const NodeId node = graph.value(value).producer;
  return node != kNoId && node < plans_.size() && plans_[node].number > 0 ? &plans_[node] : nullptr;
}

ValueId ReplayNeeds::gate_of(const EvictorGraph& graph, ValueId value) const {
  const Plan* plan = plan_of(graph, value);
  if (plan == nullptr || plan->gate == kNoId || !graph.value(plan->gate).exists) {
    return kNoId;
  }
  const Plan* gate = plan_of(graph, plan->gate);
  return gate != nullptr && gate->number == plan->gate_number ? plan->gate : kNoId;
}

int64_t ReplayNeeds::bytes_for(const EvictorGraph& graph, ValueId value) const {
  const Plan* plan = plan_of(graph, value);
  return plan != nullptr ? plan->bytes : 0;
}

ValueId ReplayNeeds::common_gate(const EvictorGraph& graph, const Order& values) const {
  ValueId common = values.front();
  int steps = 0;
  for (ValueId other : values) {
    while (common != other) {
      const Plan* of_common = plan_of(graph, common);
      const Plan* of_other = plan_of(graph, other);
      if (of_common == nullptr || of_other == nullptr || ++steps > kMostGates) {
        return kNoId;
      }
      ValueId& younger = of_common->number >= of_other->number ? common : other;
      younger = gate_of(graph, younger);
      if (younger == kNoId) {
        return kNoId;
      }
    }
  }
  return common;
}

int64_t ReplayNeeds::bytes_beside(const EvictorGraph& graph, ValueId value, const Order& there) const {
  if (there.empty()) {
    return bytes_for(graph, value);
  }
  uint64_t oldest = std::numeric_limits<uint64_t>::max();
  for (const ValueId other : there) {
    const Plan* plan = plan_of(graph, other);
    oldest = std::min(oldest, plan != nullptr ? plan->number : 0);
  }
  int64_t most = 0;
  for (int i = 0; i < kMostGates; ++i) {
    const Plan* plan = plan_of(graph, value);
    if (plan == nullptr) {
      return most;
    }
    if (plan->number < oldest) {
      return std::max(most, plan->bytes);
    }
    const ValueId gate = gate_of(graph, value);
    if (gate == kNoId || contains(there, gate)) {
      return std::max(most, plan->beyond);
    }
    most = std::max(most, graph.value(gate).bytes + plan->beyond);
    value = gate;
  }
  return std::max(most, bytes_for(graph, value));
}

ReplayNeeds::Gathering ReplayNeeds::gather(const EvictorGraph& graph, Order order, ValueId gate,
                                           int64_t results) const {
  Gathering gathering;
  Order there;
  if (gate != kNoId) {
    there.push_back(gate);
  }
  int64_t gathered = 0;
  for (const ValueId input : order) {
    if (input == gate) {
      continue;
    }
    const int64_t bytes = order.size() <= kMostInputs ? bytes_beside(graph, input, there) : bytes_for(graph, input);
    gathering.bytes = std::max(gathering.bytes, gathered + bytes);
    gathered += graph.value(input).bytes;
    there.push_back(input);
  }
  gathering.bytes = std::max(gathering.bytes, gathered + results);
  gathering.order = std::move(order);
  return gathering;
}

ReplayNeeds::Gathering ReplayNeeds::best_gathering(const EvictorGraph& graph, const Order& missing, ValueId gate,
                                                   int64_t results) const {
  Order there;
  if (gate != kNoId) {
    there.push_back(gate);
  }
  const auto number = [&](ValueId value) {
    const Plan* plan = plan_of(graph, value);
    return plan != nullptr ? plan->number : 0;
  };
  // An input that takes much to compute and leaves little goes first.
  std::vector<std::pair<int64_t, ValueId>> by_gain;
  for (const ValueId input : missing) {
    const int64_t bytes = missing.size() <= kMostInputs ? bytes_beside(graph, input, there) : bytes_for(graph, input);
    by_gain.emplace_back(graph.value(input).bytes - bytes, input);
  }
  std::stable_sort(by_gain.begin(), by_gain.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Order order;
  for (const auto& [gain, input] : by_gain) {
    order.push_back(input);
  }
  Gathering best = gather(graph, std::move(order), gate, results);
  // The oldest first: others may have been computed from it.
  order = missing;
  std::stable_sort(order.begin(), order.end(), [&](ValueId a, ValueId b) { return number(a) < number(b); });
  Gathering oldest_first = gather(graph, std::move(order), gate, results);
  return oldest_first.bytes < best.bytes ? oldest_first : best;
}

void ReplayNeeds::note_missing(const EvictorGraph& graph, NodeId node, const Order& missing) {
  if (node >= plans_.size()) {
    plans_.resize(node + 1);
  }
  const int64_t results = bytes_of_results(graph, node);
  Plan plan{.number = ++number_, .beyond = results, .bytes = results};
  plans_[node] = {};  // of the node that had this id before
  if (!missing.empty()) {
    const ValueId gate = common_gate(graph, missing);
    const Gathering without = best_gathering(graph, missing, kNoId, results);
    plan.beyond = plan.bytes = without.bytes;
    const Plan* of_gate = gate != kNoId ? plan_of(graph, gate) : nullptr;
    if (of_gate != nullptr) {
      const int64_t beyond = missing.size() == 1 ? results : best_gathering(graph, missing, gate, results).bytes;
      const int64_t bytes = std::max(of_gate->bytes, graph.value(gate).bytes + beyond);
      if (bytes <= without.bytes) {
        plan.gate = gate;
        plan.gate_number = of_gate->number;
        plan.beyond = beyond;
        plan.bytes = bytes;
      }
    }
  }
  plans_[node] = plan;
}

ReplayNeeds::Order ReplayNeeds::order_of(const EvictorGraph& graph, NodeId node, const Order& missing) const {
  if (node >= plans_.size() || plans_[node].number == 0 || missing.empty()) {
    return missing;
  }
  const Plan& plan = plans_[node];
  ValueId gate = kNoId;
  if (plan.gate != kNoId && graph.value(plan.gate).exists) {
    const Plan* of_gate = plan_of(graph, plan.gate);
    gate = of_gate != nullptr && of_gate->number == plan.gate_number ? plan.gate : kNoId;
  }
  Order order = best_gathering(graph, missing, gate, bytes_of_results(graph, node)).order;
  if (gate != kNoId) {
    order.erase(std::remove(order.begin(), order.end(), gate), order.end());
    order.insert(order.begin(), gate);
  }
  return order;
}

}  // namespace ac2::internal
