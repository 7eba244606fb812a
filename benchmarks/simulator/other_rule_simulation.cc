#include "benchmarks/simulator/other_rule_simulation.h"

#include <algorithm>
#include <vector>

namespace ac2::internal {

OtherRuleSimulation::OtherRuleSimulation(const RecordedStep& step, const StepStructure& structure,
                                         const SimulatorOptions& options)
    : Simulation(step, structure, options), rule_(make_other_rule(options.other_rule, evictor_)) {}

ValueId OtherRuleSimulation::choose_victim() {
  return rule_->next_victim();
}

void OtherRuleSimulation::drop(ValueId victim) {
  ++result_.evictions;
  evictor_.set_place(victim, Place::kNowhere);
  rule_->left(victim);
}

void OtherRuleSimulation::released(uint32_t tensor) {
  const ValueId value = id_of(tensor);
  if (evictor_.graph().value(value).hooks == 0 && evictor_.may_drop(value)) {
    evictor_.set_place(value, Place::kNowhere);
    rule_->left(value);
  }
}

void OtherRuleSimulation::gathers(uint32_t op) {
  for (const uint32_t tensor : step_.ops[op].arguments) {
    rule_->used(id_of(tensor));
  }
}

void OtherRuleSimulation::op_ended(uint32_t op) {
  std::vector<ValueId> values;
  for (const uint32_t tensor : step_.ops[op].results) {
    values.push_back(id_of(tensor));
  }
  // Several views that the op has made of one value count once.
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  for (const ValueId value : values) {
    rule_->made(value, step_.ops[op].cost);
  }
}

}  // namespace ac2::internal
