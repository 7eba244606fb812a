#include "benchmarks/simulator/dtr_class_rule.h"

#include <algorithm>
#include <utility>

namespace ac2::internal {

uint32_t DtrClassRule::root(uint32_t element) {
  while (elements_[element].parent != element) {
    elements_[element].parent = elements_[elements_[element].parent].parent;
    element = elements_[element].parent;
  }
  return element;
}

absl::InlinedVector<uint32_t, 8> DtrClassRule::classes_beside(ValueId value) {
  absl::InlinedVector<uint32_t, 8> roots;
  const auto meet = [&](ValueId other) {
    if (other < element_of_.size() && element_of_[other] != kNoId) {
      roots.push_back(root(element_of_[other]));
    }
  };
  const NodeId producer = graph().value(value).producer;
  if (producer != kNoId) {
    for (const EvictorGraph::Input& input : graph().node(producer).inputs) {
      meet(input.value);
    }
  }
  for (const EvictorGraph::Use& use : graph().value(value).uses) {
    for (const ValueId result : graph().node(use.node).results) {
      meet(result);
    }
  }
  std::sort(roots.begin(), roots.end());
  roots.erase(std::unique(roots.begin(), roots.end()), roots.end());
  return roots;
}

void DtrClassRule::left(ValueId value) {
  OtherRule::left(value);
  if (value >= element_of_.size()) {
    element_of_.resize(value + 1, kNoId);
  }
  const uint32_t element = static_cast<uint32_t>(elements_.size());
  elements_.push_back({element, cost(value)});
  for (const uint32_t beside : classes_beside(value)) {
    elements_[beside].parent = element;
    elements_[element].cost += elements_[beside].cost;
  }
  element_of_[value] = element;
}

void DtrClassRule::came(ValueId value) {
  OtherRule::came(value);
  if (value < element_of_.size() && element_of_[value] != kNoId) {
    elements_[root(std::exchange(element_of_[value], kNoId))].cost -= cost(value);
  }
}

double DtrClassRule::score(ValueId value, double) {
  double numerator = cost(value);
  for (const uint32_t beside : classes_beside(value)) {
    numerator += elements_[beside].cost;
  }
  return rate(numerator, value);
}

}  // namespace ac2::internal
