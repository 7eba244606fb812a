// A step of a program, as the planner sees it: its ops, the values that they make, and when autograd wants which.
//
// StepLog (in observe) writes it while a step is recorded. A StepGraph is plain data about sizes, costs and order. A
// StepGraph keeps nothing of the program alive, and knows no tensors and nothing of LibTorch. Ops, values and hooks are
// named by their position in its vectors.
//
// StepGraph's Value and Op are not those of the tape: a tape's nodes come and go, and a step's do not.
#pragma once

#include <cstdint>
#include <vector>

namespace ac2::internal {

struct StepGraph {
  static constexpr uint32_t kOutside = ~uint32_t{0};

  // Whether a plan may choose for the results of an op.
  enum class Fate : uint8_t {
    kOpen,        // the plan chooses whether to keep them or to compute them again
    kSaved,       // they are held: a decision says so that no plan overrides, or they cannot be computed again
    kRecomputed,  // they are computed again: such a decision says so, or they are overwritten
  };
  // Where packing and unpacking takes place.
  enum class Queue : uint8_t {
    kOps,     // between the ops: the step takes as much longer
    kCopies,  // on two queues of copies beside the ops, one each way; copy_schedule.h says for what a step waits
  };
  // A form in which a value may be held in place of its bytes.
  struct FormOfValue {
    uint8_t form = 0;   // its position in `forms`
    int64_t bytes = 0;  // that stay on the device
    // Of packing it, and of unpacking it for one use, in the unit of Op::cost. 0 for Queue::kCopies.
    double pack_cost = 0;
    double unpack_cost = 0;
  };
  struct Value {
    int64_t bytes = 0;                    // as it is held
    int64_t unpacked_bytes = 0;           // of what that is unpacked to when it is wanted; 0: it is used as it is
    uint32_t op = kOutside;               // the op that made it
    bool ours = false;                    // the value comes from outside, but only the region keeps it alive
    std::vector<FormOfValue> forms = {};  // each form once
    // Null if the value cannot be held in the form.
    const FormOfValue* in_form(uint8_t form) const {
      for (const FormOfValue& one : forms) {
        if (one.form == form) {
          return &one;
        }
      }
      return nullptr;
    }
  };
  struct Op {
    double cost = 0;
    Fate fate = Fate::kOpen;
    // Of kRecomputed: a memory budget holds the results while there is room, and drops them before those of kOpen.
    bool budgets_hold = false;
    std::vector<uint32_t> inputs;   // values, each once, in the order in which a replay fetches them
    std::vector<uint32_t> results;  // values
    std::vector<uint32_t> takes;    // of the inputs: those into which a replay writes, or into a copy of which
  };
  struct Event {
    enum Kind : uint8_t {
      kRuns,      // the op `index` runs
      kWanted,    // the hook `index` begins to want its value
      kBackward,  // a backward begins, after the one before has ended
      kTaken,     // the value of the hook `index` is unpacked
      kReleased,  // the hook `index` is destroyed
      kDies,      // nothing can want the value `index` any more
    };
    Kind kind = kRuns;
    uint32_t index = 0;
  };

  std::vector<Queue> forms;  // where each form of the step packs and unpacks
  std::vector<Value> values;
  std::vector<Op> ops;          // in the order of the program
  std::vector<uint32_t> hooks;  // by hook: the value that it wants
  std::vector<Event> events;
  // So many such steps are in flight: their forwards have run, and their backwards are to come, one after the other.
  // The events are those of one.
  int64_t in_flight = 1;
  // By hook: how much time backward has taken by itself, in the unit of Op::cost, when it takes the value. For plans
  // that copy. Empty: backward is as long as forward, and goes through it in reverse.
  std::vector<double> taken_at;
};

}  // namespace ac2::internal
