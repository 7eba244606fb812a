// A recorded step, and what it would cost under a budget: the evictor's decisions, carried out on paper.
//
//   RecordedStep step = …;                                  // see benchmarks/dtr_trace.h
//   StepResult plain = simulate(step, {});                  // plain.peak_bytes
//   StepResult half = simulate(step, {.budget = plain.peak_bytes / 2});
//
// The rules: ops run in order. Before one runs, what it takes and has no bytes is computed again, at the recorded cost.
// An op has its inputs and all its results in memory at once, a result that exists already twice; what is not needed
// goes right after. A view of bytes that were computed again is made again, at its cost. What comes from outside counts
// and never goes. A value without names is let go of, unless it is needed to compute another. At the end all that still
// has a name is brought back, together.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ac2/internal/eviction/eviction_rule.h"

namespace ac2::internal {

struct RecordedStep {
  // A tensor: a value's bytes, seen in one way.
  struct Tensor {
    uint32_t value = 0;
    uint32_t op = kNoId;      // that made it; kNoId: from outside
    uint32_t viewed = kNoId;  // the tensor that it is a view of
  };
  struct Value {
    int64_t bytes = 0;
    bool outside = false;
  };
  struct Op {
    std::string name;
    double cost = 0;
    std::vector<uint32_t> arguments;  // tensors
    std::vector<uint32_t> results;    // tensors, views among them
  };
  struct Event {
    enum Kind : uint8_t { kAppears, kRuns, kNamed, kReleased };
    Kind kind = kRuns;
    uint32_t index = 0;  // of a tensor; for kRuns of an op
  };

  std::vector<Tensor> tensors;
  std::vector<Value> values;
  std::vector<Op> ops;
  std::vector<Event> events;
  std::vector<uint32_t> alive_at_end;  // tensors

  // Sum of the ops' costs.
  double cost() const;
};

struct SimulatorOptions {
  int64_t budget = std::numeric_limits<int64_t>::max();  // bytes
  // The evictor is told when each value will be used. Otherwise it learns what the program does as it does it.
  bool step_known = false;
  RuleConstants rule = {};
  // For each value of the step, what dropping it is taken to cost, times this; empty: 1 for all.
  std::vector<double> bias = {};
  // A run is given up when it has cost this many times the step's own cost.
  double give_up_at = 100;
};

struct StepResult {
  enum Outcome : uint8_t { kCompleted, kOutOfMemory, kGivenUp };
  Outcome outcome = kCompleted;
  int64_t peak_bytes = 0;
  double cost = 0;                 // of all that ran
  int64_t evictions = 0;           // of values that were needed
  std::vector<uint32_t> replayed;  // ops that ran again, in that order
  int64_t missing_bytes = 0;       // kOutOfMemory: how much more the op that failed would have taken
  uint32_t failed_op = kNoId;
  double evictor_seconds = 0;  // real time in next_victim()
};

StepResult simulate(const RecordedStep& step, const SimulatorOptions& options);

}  // namespace ac2::internal
