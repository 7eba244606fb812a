// The speed of copies to the host beside the ops of a recorded step, measured by copying a few of its results.
//
//   MeasuredCopies copies(options, costs);
//   …for each op, from a policy: copies.measure(op, cost of the ops so far);
//   … copies.bytes_per_cost() …    // once the step is over; 0 if the device says nothing
//
// Threads: not thread-safe.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <vector>

#include "ac2/internal/offload/offloaded_value.h"
#include "ac2/internal/operators/cost_source.h"
#include "ac2/internal/operators/program_clock.h"
#include "ac2/offload_options.h"
#include "ac2/policy.h"

namespace ac2::internal {

class MeasuredCopies {
 public:
  MeasuredCopies(const OffloadOptions& options, CostSource costs);

  void measure(const OpContext& op, double cost);
  // Waits for the device.
  double bytes_per_cost();

 private:
  const OffloadOptions options_;
  ProgramClock clock_;
  struct Copy {
    c10::Device device;
    c10::intrusive_ptr<OffloadedValue> value;
  };
  std::vector<Copy> copies_;
};

}  // namespace ac2::internal
