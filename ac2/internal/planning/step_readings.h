// The memory that a device had allocated while a step was recorded, and when the program had which results.
//
// StepMeter (in observe) writes it beside the StepGraph of the step, whose events and values it refers to. Plain data.
#pragma once

#include <cstdint>
#include <vector>

namespace ac2::internal {

struct StepReadings {
  // The program begins to have a value, or no longer has it: a tensor of the program's, of a kernel's or of autograd's
  // shares the value's storage.
  struct Change {
    uint32_t value = 0;
    bool has = false;
  };
  // A moment at which the memory was looked at.
  struct Look {
    uint32_t event = 0;         // the next event; one past the last for looks after it
    int64_t now = 0;            // allocated
    int64_t highest = 0;        // the most since the look before
    int64_t allocated = 0;      // the bytes of all allocations since the look before
    std::vector<Change> found;  // since the look before, beside `handed_out`
  };

  std::vector<Look> looks;  // there is one just before each event, and one at the end
  // By event: what the program has once the event has happened, because the event hands it out.
  std::vector<std::vector<uint32_t>> handed_out;
  std::vector<uint8_t> is_there;    // by value: its storage is on the device
  std::vector<int64_t> workspaces;  // by op: the most that its kernel had beside its results
  int64_t start = 0;                // allocated when the step began
};

}  // namespace ac2::internal
