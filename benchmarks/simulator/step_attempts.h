// Attempts to make a recorded step cheaper under a budget: each is simulated with options of its own, and the cheapest
// so far is kept. A search chooses the options.
//
//   StepAttempts attempts(step, choice);   // the cheapest so far
//   attempts.attempt(options);
//   attempts.best();
//
// The outcome is the same as if simulate() were called with each of the options. An attempt is cheaper to make than
// that for two reasons:
//
// - A simulation does not begin anew. It goes on from a copy of an earlier one, taken where both are still the same: at
//   the first choice of a victim if the constants of the rule are new, or at the first new bias. Some copies of the
//   cheapest simulation are kept for that.
// - A simulation ends as soon as it is certain that the step becomes no cheaper.
//
// Threads: not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "benchmarks/simulator/simulation.h"
#include "benchmarks/simulator/step_simulator.h"
#include "benchmarks/simulator/step_structure.h"

namespace ac2::internal {

struct RuleChoice {
  SimulatorOptions options;
  StepResult result;  // that of simulate(step, options)
};

class StepAttempts {
 public:
  // The step must outlive this. The options of `best` know the step, and have no copies.
  StepAttempts(const RecordedStep& step, RuleChoice best);
  StepAttempts(const StepAttempts&) = delete;
  StepAttempts& operator=(const StepAttempts&) = delete;

  // Whether the step has become cheaper. `options` are then the best.
  bool attempt(const SimulatorOptions& options);
  const RuleChoice& best() const { return best_; }
  const RecordedStep& step() const { return step_; }
  // The work of all attempts, in ops that were simulated.
  int64_t work() const { return work_; }

 private:
  // Simulations that all weigh values by the next use, or all by the last.
  struct Lane {
    SimulatorOptions options;           // those of the next simulation
    std::unique_ptr<Simulation> start;  // the step up to the first choice of a victim
    std::unique_ptr<Simulation> running;
  };

  Lane& lane(bool by_next_use);
  bool goes_by_rule_of_best(const SimulatorOptions& options) const;
  // The copy from which a simulation with these options goes on.
  const Simulation& origin(const SimulatorOptions& options);
  // The first event at which the biases make a difference to those of the best.
  size_t first_difference(const SimulatorOptions& options) const;
  void copy_best();

  const RecordedStep& step_;
  const StepStructure structure_;
  RuleChoice best_;
  std::array<Lane, 2> lanes_;
  std::vector<size_t> events_;                       // by op: its event
  std::vector<std::unique_ptr<Simulation>> copies_;  // of the best simulation, the earliest first
  int64_t work_ = 0;
};

}  // namespace ac2::internal
