// The summary of a plan (ac2/plan.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ac2 {

// The most that one step with a plan comes to, as computed from the recording, however many are in flight
// (PlanOptions::in_flight). Where the program itself still has results when backward begins, in a local variable or a
// list, backward takes those as they are: a step then replays fewer ops, and holds fewer bytes in backward, than the
// summary says. The summary says exactly what happens where the program has let go of all that it computed but the
// loss.
struct PlanSummary {
  int64_t forward_bytes = 0;  // held when backward begins
  int64_t peak_bytes = 0;     // the most held at any time, and so a budget that the plan fits
  int64_t replayed_ops = 0;   // in a backward
  // The cost of the replays, and of all the step's ops outside backward. The unit is a tick of a clock, or, with
  // modelled_costs, a nanosecond of an imagined machine: only ratios mean anything.
  double replay_cost = 0;
  double forward_cost = 0;
  // The results that are held in a form, by form, of those forms that hold any.
  struct Use {
    std::string form;    // its name
    int64_t values = 0;  // results
    int64_t bytes = 0;   // of these before they are packed
    double cost = 0;     // of packing and unpacking, in the same unit; of copies the time for which the step waits
  };
  std::vector<Use> uses = {};
  // The most that all tensors on PlanOptions::step_peak_on take at any time in a step that follows the plan: parameters
  // and inputs, gradients, results that the program has, what the region holds and computes again, and the memory of
  // kernels. The number is for a step that begins as the recorded one did, with the same gradients there or not, in a
  // region that lasts as long. Where the region ends before backward the step may take less. docs/budget.md says how
  // near the number comes.
  //
  // On the CPU, tensors count that were allocated while the step was recorded, or that an op of the step takes. Memory
  // that kernels take past LibTorch's allocator does not count.
  //
  // Empty without the option, if the step ran no backward, if the plan uses a form, if the recording had to drop
  // results for its budget, and of StepPlanner::budget(). Where the memory of the device cannot be measured, the
  // StepPlanner's constructor throws: on the meta device, on an accelerator whose allocator has no statistics (any
  // before LibTorch 2.9), and while another step is measured.
  std::optional<int64_t> step_peak_bytes = std::nullopt;
  // Of these, the bytes that were there when the step began.
  std::optional<int64_t> step_start_bytes = std::nullopt;
};

}  // namespace ac2
