// The policy of a plan, which decides by the op's number for as long as the program runs the ops that were planned.
//
//   ac2::Policy policy = follow(planned_step);
//
// Each region has its own way along the plan. A region that runs another op than the planned one, one whose results
// have another size, or more ops than were planned has left the plan: all that it computes from then on is PREFER_SAVE,
// under the budget of the plan. The first region that does so warns.
//
// A result that the plan packs is saved with the functions of the plan's form, or as a copy if the form does not take
// it.
//
// A result that the plan copies to the host's memory is MUST_CPU_OFFLOAD. On the CPU there is nothing to copy it to. It
// is then PREFER_SAVE, under the same budget, and the first region in which that happens warns.
#pragma once

#include <memory>

#include "ac2/internal/following/planned_step.h"
#include "ac2/policy.h"

namespace ac2::internal {

Policy follow(std::shared_ptr<const PlannedStep> plan);

}  // namespace ac2::internal
