#include "benchmarks/simulator/step_structure.h"

#include <algorithm>
#include <utility>

namespace ac2::internal {

StepStructure::StepStructure(const RecordedStep& step)
    : ops_(step.ops.size()), producers_(step.values.size(), kNoId), cost_(step.cost()) {
  for (uint32_t i = 0; i < step.ops.size(); ++i) {
    Op& op = ops_[i];
    for (const uint32_t tensor : step.ops[i].arguments) {
      const uint32_t value = step.tensors[tensor].value;
      if (std::find(op.inputs.begin(), op.inputs.end(), value) == op.inputs.end()) {
        op.inputs.push_back(value);
      }
    }
    for (const uint32_t tensor : step.ops[i].results) {
      if (step.tensors[tensor].viewed == kNoId) {
        const uint32_t value = step.tensors[tensor].value;
        op.made.push_back(value);
        op.made_bytes += step.values[value].bytes;
        producers_[value] = i;
      }
    }
  }
  note_uses(step);
}

void StepStructure::note_uses(const RecordedStep& step) {
  std::vector<std::pair<uint32_t, double>> uses;  // values, and times, which rise
  double time = 0;
  for (const RecordedStep::Event& event : step.events) {
    if (event.kind == RecordedStep::Event::kRuns) {
      for (const uint32_t value : ops_[event.index].inputs) {
        uses.emplace_back(value, time);
      }
      time += step.ops[event.index].cost;
    }
  }
  for (const uint32_t tensor : step.alive_at_end) {
    uses.emplace_back(step.tensors[tensor].value, time);
  }
  first_uses_.resize(step.values.size() + 1, 0);
  for (const auto& use : uses) {
    ++first_uses_[use.first + 1];
  }
  for (size_t value = 0; value < step.values.size(); ++value) {
    first_uses_[value + 1] += first_uses_[value];
  }
  uses_.resize(uses.size());
  std::vector<uint32_t> next(first_uses_.begin(), first_uses_.end() - 1);
  for (const auto& [value, when] : uses) {
    uses_[next[value]++] = when;
  }
}

}  // namespace ac2::internal
