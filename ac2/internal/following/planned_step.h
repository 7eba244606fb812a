// The decisions of a plan, op by op, and the marks by which the ops of a later step are known to be the planned ones.
//
// Threads: a planned step does not change once it is made, but for `warned`. Any number of regions may follow it at
// once.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "ac2/form.h"
#include "ac2/internal/operators/cost_source.h"
#include "ac2/offload_options.h"
#include "ac2/plan_summary.h"
#include "ac2/policy.h"

namespace ac2::internal {

struct PlannedCall {
  c10::OperatorHandle op;
  int64_t result_bytes = 0;
};

// By OpContext::index(); empty where no policy is asked.
using PlannedCalls = std::vector<std::optional<PlannedCall>>;

struct PlannedStep {
  PlannedCalls calls;
  std::vector<CheckpointPolicy> decisions;  // as long as `calls`
  int64_t bytes = 0;                        // the budget that a region which follows the plan has
  CostSource costs = CostSource::kMeasured;
  // If decisions are MUST_CPU_OFFLOAD. The bytes of the plan count what these let be on its way.
  std::optional<OffloadOptions> copies = std::nullopt;
  // The forms that the results of some ops are packed in.
  Forms forms;
  static constexpr uint8_t kInNoForm = 0xff;
  std::vector<uint8_t> in_form;  // as long as `calls`: of whose results, the position in `forms`; empty without forms
  // PolicyInstance::is_inexact of a region that follows the plan. True with a form that is not exact, and where the
  // recorded step has saved the results of an op for the sake of one, whether or not the plan uses it.
  bool is_inexact = false;
  PlanSummary summary;
  // A region has left the plan, and the program was told. Exchanged, so that one region tells.
  mutable std::atomic<bool> warned{false};
  // The same of a result that was to be copied from a device and is not on one.
  mutable std::atomic<bool> warned_of_no_device{false};
};

}  // namespace ac2::internal
