// A Simulation in which another rule names the victims, on a runtime like the one of Dynamic Tensor Rematerialization
// (Kirisame et al., arXiv 2006.09616), for which those rules were made.
//
// As there, with "eager eviction": a value is dropped as soon as the program has no name for it, whatever needs it to
// compute others, and is never forgotten. A value that was computed again stays, with all results of its op, until the
// rule names it, even if nothing needs it any more. An op's inputs that are there are pinned before the others are
// computed again, in their order. Values from outside are never dropped, and at the end all that has a name is brought
// back, as in any Simulation.
//
// StepResult::evictions counts the victims of the rule, and not what was dropped without being asked for.
// Guaranteed: the same step and options give the same result. Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "benchmarks/simulator/other_rule.h"
#include "benchmarks/simulator/simulation.h"

namespace ac2::internal {

class OtherRuleSimulation final : public Simulation {
 public:
  OtherRuleSimulation(const RecordedStep& step, const StepStructure& structure, const SimulatorOptions& options);

 private:
  ValueId choose_victim() override;
  void drop(ValueId victim) override;
  void came(ValueId value) override { rule_->came(value); }
  void gathers(uint32_t op) override;
  void released(uint32_t tensor) override;
  bool keeps(ValueId) const override { return true; }
  void drop_unneeded() override {}
  void op_ended(uint32_t op) override;

  const std::unique_ptr<OtherRule> rule_;
};

}  // namespace ac2::internal
