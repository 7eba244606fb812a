#include "benchmarks/simulator/step_simulator.h"

#include <stdexcept>

#include "benchmarks/simulator/host_copies_simulation.h"
#include "benchmarks/simulator/offload_simulation.h"
#include "benchmarks/simulator/other_rule_simulation.h"
#include "benchmarks/simulator/simulation.h"
#include "benchmarks/simulator/step_structure.h"

namespace ac2::internal {

double RecordedStep::cost() const {
  double sum = 0;
  for (const Op& op : ops) {
    sum += op.cost;
  }
  return sum;
}

StepResult simulate(const RecordedStep& step, const SimulatorOptions& options) {
  const StepStructure structure(step);
  if (options.other_rule != OtherRuleName::kNone) {
    if (options.step_known || options.store != nullptr || !options.bias.empty() || options.link_bytes_per_ns != 0) {
      throw std::logic_error("another rule knows no step, no bias and no copies");
    }
    return OtherRuleSimulation(step, structure, options).run();
  }
  if (options.link_bytes_per_ns == 0) {
    return Simulation(step, structure, options).run();
  }
  if (!(options.link_bytes_per_ns > 0)) {
    throw std::logic_error("copies need a bandwidth that is positive");
  }
  return options.step_known ? OffloadSimulation(step, structure, options).run()
                            : HostCopiesSimulation(step, structure, options).run();
}

}  // namespace ac2::internal
