// The one link between a policy and the plan that it follows. A plan is more than decisions: the scope that is given
// one takes its budget and the bounds of its copies from it. So what a plan brings does not pass through
// PolicyInstance, which authors of policies see.
//
// The functions are defined in ac2/policy.cc.
//
// Threads: any.
#pragma once

#include <functional>
#include <memory>

namespace ac2 {

class Policy;
struct PolicyInstance;

namespace internal {

struct PlannedStep;

// `enter` runs for each region entered, as policy_per_region()'s function does.
Policy policy_of_plan(std::shared_ptr<const PlannedStep> plan, std::function<PolicyInstance()> enter);

// Null for any policy that is no plan's. Not null for a plan's with names (Policy::with_names).
const std::shared_ptr<const PlannedStep>& planned_step_of(const Policy& policy);

// enter_policy() for the region of a scope, which may be given a plan.
PolicyInstance enter_for_region(const Policy& policy);

}  // namespace internal
}  // namespace ac2
