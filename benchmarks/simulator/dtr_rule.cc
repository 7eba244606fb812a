#include "benchmarks/simulator/dtr_rule.h"

namespace ac2::internal {

double DtrRule::score(ValueId value, double limit) {
  const double most = limit * (bytes(value) * staleness(value));
  sum_ = cost(value);
  add_cost_above(value, most);
  add_cost_below(value, most);
  return rate(sum_, value);
}

void DtrRule::begin_walk(ValueId value) {
  marks_.resize(graph().value_limit(), 0);
  marks_[value] = ++walk_;
  work_.assign(1, value);
}

void DtrRule::meet(ValueId value) {
  if (!graph().value(value).resident && marks_[value] != walk_) {
    marks_[value] = walk_;
    sum_ += cost(value);
    work_.push_back(value);
  }
}

void DtrRule::add_cost_above(ValueId value, double most) {
  begin_walk(value);
  while (!work_.empty() && sum_ <= most) {
    const NodeId producer = graph().value(work_.back()).producer;
    work_.pop_back();
    if (producer != kNoId) {
      for (const EvictorGraph::Input& input : graph().node(producer).inputs) {
        meet(input.value);
      }
    }
  }
}

void DtrRule::add_cost_below(ValueId value, double most) {
  begin_walk(value);
  while (!work_.empty() && sum_ <= most) {
    const ValueId above = work_.back();
    work_.pop_back();
    for (const EvictorGraph::Use& use : graph().value(above).uses) {
      for (const ValueId result : graph().node(use.node).results) {
        meet(result);
      }
    }
  }
}

}  // namespace ac2::internal
