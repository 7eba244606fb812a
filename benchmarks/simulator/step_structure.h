// The facts of a recorded step that each simulation of it looks up. Searches simulate a step thousands of times, and
// work them out once.
//
//   const StepStructure structure(step);
//   Simulation(step, structure, options).run();
//
// Threads: immutable.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "benchmarks/simulator/step_simulator.h"

namespace ac2::internal {

class StepStructure {
 public:
  struct Op {
    absl::InlinedVector<uint32_t, 4> inputs;  // values, each once
    absl::InlinedVector<uint32_t, 2> made;    // values
    int64_t made_bytes = 0;
  };

  explicit StepStructure(const RecordedStep& step);

  const Op& op(uint32_t index) const { return ops_[index]; }
  // The op that makes the value, or kNoId.
  uint32_t producer(uint32_t value) const { return producers_[value]; }
  // When ops of the program take the value, and the program's end for a value that is alive then. The times are sums of
  // the costs of the ops before.
  absl::Span<const double> uses(uint32_t value) const {
    return absl::MakeConstSpan(uses_).subspan(first_uses_[value], first_uses_[value + 1] - first_uses_[value]);
  }
  // Of all ops.
  double cost() const { return cost_; }

 private:
  void note_uses(const RecordedStep& step);

  std::vector<Op> ops_;
  std::vector<uint32_t> producers_;   // by value
  std::vector<double> uses_;          // of all values, one value after the other
  std::vector<uint32_t> first_uses_;  // by value, and the end
  double cost_ = 0;
};

}  // namespace ac2::internal
