#include "ac2/old_names.h"

#include <c10/util/Exception.h>

#include "ac2/internal/following/plan_file.h"
#include "ac2/internal/policy_names/plan_policy.h"
#include "ac2/policy_instance.h"

namespace ac2 {

void save_plan(const Policy& plan, const std::string& path) {
  const auto& step = internal::planned_step_of(plan);
  // A name policy says something of its own, which is not the plan's.
  TORCH_CHECK(
      step != nullptr && !internal::enter_for_region(plan).by_name, "save_plan was given ",
      plan.name().empty() ? std::string("a policy without a name") : c10::str("the policy \"", plan.name(), "\""),
      ", which is no plan; expected what ac2::plan, StepPlanner or load_plan returned, without names of its own.");
  internal::write_plan(*step, path);
}

Plan load_plan(const std::string& path, const Forms& own) {
  return Plan::load(path, own);
}

}  // namespace ac2
