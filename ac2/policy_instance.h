// The policy as one region has it, for authors of policies that are made of policies.
//
//   // Says of every op what `policy` says, and counts the ops that it saves.
//   ac2::Policy counting(ac2::Policy policy, std::shared_ptr<int> saved) {
//     return ac2::policy_per_region([policy, saved] {
//       auto of = std::make_shared<const ac2::PolicyInstance>(enter_policy(policy));
//       ac2::PolicyInstance instance;
//       instance.fn = [of, saved](const ac2::OpContext& op) {
//         const ac2::PolicyDecision decision = of->decide(op);
//         *saved += decision.saves() ? 1 : 0;
//         return decision;
//       };
//       instance.may_drop_tensors = of->may_drop_tensors;
//       return instance;
//     });
//   }
//
// Threads: an instance belongs to the region that entered it.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "ac2/policy.h"

namespace ac2 {

// Exactly one of the first three members is set.
struct PolicyInstance {
  std::optional<PolicyDecision> constant;
  OperatorPolicyFn by_operator;
  PolicyFn fn;
  NamePolicyFn by_name;   // may be empty
  std::string name = {};  // of the policy; see Policy::named()
  // Results may be packed into forms that lose something, and others be computed again from these. In the whole region
  // ops that turn numbers into integers or bools are then saved, whatever policies say, because they could choose
  // otherwise the second time (ScopeOptions::forms says more).
  bool is_inexact = false;
  // The functions may drop a tensor of the program's while an op runs that reads it. Ops then hold their arguments. A
  // program may set it to false for functions that drop nothing: each op is dispatched faster.
  bool may_drop_tensors = true;

  // Null if only `fn` can decide, which has to see the call.
  std::optional<PolicyDecision> decide(const c10::OperatorHandle& op) const;
  PolicyDecision decide(const OpContext& op) const;
  // The result of by_name; null without one.
  std::optional<PolicyDecision> name_opinion(const NamedTensor& tensor) const;
  // The decision for the op that computed the tensor. Null if only `fn` could give it, because `fn` has seen that op
  // already and is not asked again.
  std::optional<PolicyDecision> decide_op_of(const NamedTensor& tensor) const;
};

// `policy` as the region that is being opened has it. Throws c10::Error if the policy was moved from, and for a Plan
// (ac2/plan.h), which decides for the whole of a step and brings its own budget, and so is no part of another policy.
PolicyInstance enter_policy(const Policy& policy);
// The general form of a policy: `make` runs for each region entered. Entering it throws c10::Error if `make` returns an
// instance with none of the first three members, or with several.
Policy policy_per_region(std::function<PolicyInstance()> make);

}  // namespace ac2
