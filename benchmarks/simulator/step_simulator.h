// The cost of a recorded step under a memory budget. The library's evictor decides, and the simulator carries its
// decisions out on numbers instead of tensors.
//
//   RecordedStep step = …;                                  // see benchmarks/dtr_trace.h
//   StepResult plain = simulate(step, {});                  // plain.peak_bytes
//   StepResult half = simulate(step, {.budget = plain.peak_bytes / 2});
//
// The rules:
//
// - Ops run in order. Before one runs, values that it takes and that have no bytes are computed again, at the recorded
//   cost.
// - An op has its inputs and all its results in memory at once. A result that exists already is there twice; what is
//   not needed is dropped right after the op.
// - A view of bytes that were computed again is made again, at its cost.
// - What comes from outside counts and is never dropped.
// - A value is needed while the program has a name for one of its tensors, and while it serves to compute another.
// - At the end all values that still have a name are brought back, together.
//
// Threads: simulate() may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ac2/internal/eviction/eviction_rule.h"
#include "ac2/internal/eviction/rule_trials.h"
#include "ac2/internal/eviction/step_store.h"

namespace ac2::internal {

struct RecordedStep {
  // One way to see the bytes of a value.
  struct Tensor {
    uint32_t value = 0;
    uint32_t op = kNoId;      // the op that made it; kNoId: it comes from outside
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
    enum Kind : uint8_t {
      kAppears,   // the tensor `index` comes from outside
      kRuns,      // the op `index` runs
      kNamed,     // the program has one more name for the tensor `index`
      kReleased,  // the program has one name less for it
    };
    Kind kind = kRuns;
    uint32_t index = 0;
  };

  std::vector<Tensor> tensors;
  std::vector<Value> values;
  std::vector<Op> ops;
  std::vector<Event> events;
  std::vector<uint32_t> alive_at_end;  // tensors

  // Sum of the ops' costs.
  double cost() const;
};

// Rules that are compared with the library's: see dtr_rule.h, dtr_class_rule.h and local_rules.h.
enum class OtherRuleName : uint8_t { kNone, kDtr, kDtrClasses, kDtrLocal, kLru, kLargest };

struct SimulatorOptions {
  int64_t budget = std::numeric_limits<int64_t>::max();  // bytes
  // Whether the evictor is told when each value will be used. If not, it learns what the program does when it does it.
  bool step_known = false;
  // Whether values are then weighed by their next use. If not, they are by their last, as for a step that is not known.
  bool by_next_use = true;
  RuleConstants rule = {};
  // Unless it is kNone, this rule names the victims in place of the library's (other_rule_simulation.h). For a step
  // that is not known, without store, bias and copies.
  OtherRuleName other_rule = OtherRuleName::kNone;
  // By value of the step: a factor for the cost of dropping it. Empty: 1 for all.
  std::vector<double> bias = {};
  // The steps that were simulated before, of which this one may be a repetition; or null. The rule is then the one that
  // StepMemory chooses.
  StepStore* store = nullptr;
  // Bytes that a copy to the host's memory moves in a unit of cost (25 for 25 GB/s and ns), and as many the other way
  // meanwhile; 0: there is no such memory. `cost` is then the time that the step takes, waiting for copies included. If
  // the step is known, that is by the rule of offload_simulation.h, and else by the library's
  // (host_copies_simulation.h).
  double link_bytes_per_ns = 0;
  // Whether values may be dropped to be computed again, if they can be copied too and the step is known.
  bool recomputes = true;
  // The simulation is given up when it has cost this many times the step's own cost, or when so many ops have run
  // again: replays then drop what the next ones need, which may go on for minutes in a long step.
  double give_up_at = 100;
  size_t most_replays = 1'000'000;
};

struct StepResult {
  enum Outcome : uint8_t { kCompleted, kOutOfMemory, kGivenUp };
  Outcome outcome = kCompleted;
  int64_t peak_bytes = 0;
  double cost = 0;                 // of all that ran
  int64_t evictions = 0;           // of values that were needed
  double waited = 0;               // of the cost: for copies
  int64_t copied_bytes = 0;        // to the host and back
  std::vector<uint32_t> replayed;  // ops that ran again, in that order
  int64_t missing_bytes = 0;       // kOutOfMemory: how many more bytes the op that failed would have taken
  uint32_t failed_op = kNoId;
  // With a store: the setting with which the step began, whether it was tried out, and was given up; and at how many
  // ops (a value that is brought back at the end is one) it was known what comes.
  RuleSetting setting;
  bool tried = false;
  bool given_up = false;
  int64_t ops_known = 0;
  double evictor_seconds = 0;  // real time in next_victim()
};

StepResult simulate(const RecordedStep& step, const SimulatorOptions& options);

}  // namespace ac2::internal
