// Random changes of the rule, for a search that keeps those that make a step cheaper.
//
//   RuleMoves moves(step);
//   SimulatorOptions next = moves.change_something(best);
//
// The rule weighs a value by what is around it at one moment. That this product is the slow one of its kind, or that a
// stretch falls badly between two others, shows only in the whole step. So the cost of dropping the values of a stretch
// of ops is raised or lowered by a factor (SimulatorOptions::bias), and at times the constants of the rule are changed.
// Stretches are of a few ops, or of a large part of the step.
//
// The same calls give the same changes on every machine. Threads: not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "benchmarks/simulator/step_attempts.h"
#include "benchmarks/simulator/step_simulator.h"

namespace ac2::internal {

class RuleMoves {
 public:
  // The step must outlive this.
  explicit RuleMoves(const RecordedStep& step);

  // All constants of the rule, a little or a lot.
  SimulatorOptions change_constants(const RuleChoice& best);
  // One kind of change after the other. Something must have been replayed.
  SimulatorOptions change_something(const RuleChoice& best);

 private:
  // The change of the costs of one stretch, or of two.
  struct StretchMove {
    uint32_t most_ops = 0;
    double largest = 0;  // factors are at most e^largest
    bool raises = false;
    bool lowers = false;
  };

  // The cost of dropping the values of one kind.
  SimulatorOptions change_kind(const RuleChoice& best);
  void change(std::vector<double>& bias, uint32_t middle, uint32_t most_ops, double factor);
  // Without the distributions of the standard library, which differ between implementations. Its generators do not.
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>((uint64_t{generator_()} * limit) >> 32); }
  double share() { return generator_() * 0x1p-32; }

  const RecordedStep& step_;
  const std::vector<std::vector<uint32_t>> kinds_;
  std::mt19937 generator_;
  size_t moves_ = 0;  // of change_something()
};

}  // namespace ac2::internal
