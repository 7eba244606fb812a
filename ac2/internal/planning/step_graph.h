// One step of a program, as the planner sees it: ops, the values that they make, and when autograd wants which. No
// tensors, nothing of LibTorch.
#pragma once

#include <cstdint>
#include <vector>

namespace ac2::internal {

struct StepGraph {
  static constexpr uint32_t kOutside = ~uint32_t{0};

  // What a plan may do with the results of an op.
  enum class Fate : uint8_t {
    kOpen,        // keep them or compute them again
    kSaved,       // kept by a decision that a plan does not override, or because they cannot be computed again
    kRecomputed,  // computed again by such a decision, or because they are overwritten
  };
  struct Value {
    int64_t bytes = 0;           // in the form in which it is kept
    int64_t unpacked_bytes = 0;  // what that is unpacked to, beside it, when it is wanted; 0: it is used as it is
    uint32_t op = kOutside;      // that made it
    bool ours = false;           // from outside, but only kept alive for backward
  };
  struct Op {
    double cost = 0;
    Fate fate = Fate::kOpen;
    std::vector<uint32_t> inputs;   // values, each once, in the order in which a replay fetches them
    std::vector<uint32_t> results;  // values
    std::vector<uint32_t> takes;    // of the inputs: what a replay writes into, or else a copy of it
  };
  struct Event {
    enum Kind : uint8_t {
      kRuns,      // an op
      kWanted,    // a hook begins to want its value
      kBackward,  // a backward begins, and the one before has ended
      kTaken,     // a hook's value is taken out
      kReleased,  // a hook ends
      kDies,      // a value: nothing can want it any more
    };
    Kind kind = kRuns;
    uint32_t index = 0;
  };

  std::vector<Value> values;
  std::vector<Op> ops;          // in the order of the program
  std::vector<uint32_t> hooks;  // the value that each wants
  std::vector<Event> events;
};

}  // namespace ac2::internal
