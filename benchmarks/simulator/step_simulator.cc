#include "benchmarks/simulator/step_simulator.h"

#include <stdexcept>

#include "benchmarks/simulator/offload_simulation.h"
#include "benchmarks/simulator/simulation.h"

namespace ac2::internal {

double RecordedStep::cost() const {
  double sum = 0;
  for (const Op& op : ops) {
    sum += op.cost;
  }
  return sum;
}

StepResult simulate(const RecordedStep& step, const SimulatorOptions& options) {
  if (options.link_bytes_per_ns == 0) {
    return Simulation(step, options).run();
  }
  if (!(options.link_bytes_per_ns > 0) || !options.step_known) {
    throw std::logic_error("copies need a known step, and a bandwidth that is positive");
  }
  return OffloadSimulation(step, options).run();
}

}  // namespace ac2::internal
