#include "policies/composed_policies.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <utility>

#include "ac2/policy_instance.h"
#include "policies/internal/common/idle_hooks.h"
#include "policies/internal/common/op_names.h"
#include "policies/internal/common/wanted.h"

namespace ac2::policies {

namespace {

using Overrides = std::vector<std::pair<internal::OpNameSet, PolicyDecision>>;

const PolicyDecision* find(const Overrides& overrides, const c10::OperatorHandle& op) {
  for (const auto& [names, decision] : overrides) {
    if (names.contains(op.operator_name())) {
      return &decision;
    }
  }
  return nullptr;
}

}  // namespace

Policy per_op_override(Policy policy, const std::vector<std::pair<std::string, PolicyDecision>>& overrides) {
  auto parsed = std::make_shared<Overrides>();
  std::vector<std::string> names;
  for (const auto& [name, decision] : overrides) {
    names.push_back(name);
    parsed->emplace_back(internal::OpNameSet::parse("per_op_override", {name}), decision);
  }
  Policy overriding =
      policy_per_region([policy = std::move(policy), table = std::shared_ptr<const Overrides>(std::move(parsed))] {
        PolicyInstance overridden = enter_policy(policy);
        if (overridden.fn) {
          overridden.fn = [table, fn = std::move(overridden.fn)](const OpContext& op) {
            PolicyDecision otherwise = fn(op);
            const PolicyDecision* decision = find(*table, op.op());
            return decision != nullptr ? *decision : otherwise;
          };
          return overridden;
        }
        overridden.by_operator = [table, constant = std::exchange(overridden.constant, std::nullopt),
                                  by_operator = std::move(overridden.by_operator)](const c10::OperatorHandle& op) {
          const PolicyDecision otherwise = constant ? *constant : by_operator(op);  // sees all there is
          const PolicyDecision* decision = find(*table, op);
          return decision != nullptr ? *decision : otherwise;
        };
        return overridden;
      });
  overriding = internal::watch_hooks(std::move(overriding), "per_op_override");
  return internal::watch_ops(std::move(overriding), "per_op_override", names, internal::Complain::kOfEach)
      .named("per_op_override");
}

}  // namespace ac2::policies
