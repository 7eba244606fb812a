#include "policies/internal/common/compose.h"

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "ac2/policy_instance.h"

namespace ac2::policies::internal {

namespace {

using Instances = std::vector<PolicyInstance>;
using Decisions = c10::SmallVector<std::optional<PolicyDecision>, 4>;

template <class Subject>
PolicyDecision decide(const Instances& instances, const Fold& fold, const Subject& subject) {
  Decisions decisions;
  for (const PolicyInstance& instance : instances) {
    decisions.emplace_back(instance.decide(subject));
  }
  return fold(decisions).value();
}

std::optional<PolicyDecision> decide_name(const Instances& instances, const Fold& fold, const NamedTensor& tensor) {
  Decisions decisions;
  bool any = false;
  for (const PolicyInstance& instance : instances) {
    decisions.push_back(instance.name_opinion(tensor));
    any |= decisions.back().has_value();
  }
  if (!any) {
    return std::nullopt;
  }
  for (size_t i = 0; i < instances.size(); ++i) {
    if (!decisions[i]) {
      decisions[i] = instances[i].decide_op_of(tensor);
    }
  }
  return fold(decisions);
}

}  // namespace

Policy compose(std::vector<Policy> policies, Fold fold) {
  return policy_per_region([policies = std::move(policies), fold = std::move(fold)] {
    auto entered = std::make_shared<Instances>();
    PolicyInstance composed;
    composed.may_drop_tensors = false;
    for (const Policy& policy : policies) {
      entered->push_back(enter_policy(policy));
      composed.may_drop_tensors |= entered->back().may_drop_tensors;
      composed.is_inexact |= entered->back().is_inexact;
    }
    const std::shared_ptr<const Instances> instances = std::move(entered);
    const auto all = [&](auto is) { return std::all_of(instances->begin(), instances->end(), is); };

    if (all([](const PolicyInstance& instance) { return instance.constant.has_value(); })) {
      Decisions decisions;
      for (const PolicyInstance& instance : *instances) {
        decisions.push_back(instance.constant);
      }
      composed.constant = fold(decisions).value();
    } else if (all([](const PolicyInstance& instance) { return !instance.fn; })) {
      composed.by_operator = [instances, fold](const c10::OperatorHandle& op) { return decide(*instances, fold, op); };
    } else {
      composed.fn = [instances, fold](const OpContext& op) { return decide(*instances, fold, op); };
    }
    if (!all([](const PolicyInstance& instance) { return !instance.by_name; })) {
      composed.by_name = [instances, fold](const NamedTensor& tensor) { return decide_name(*instances, fold, tensor); };
    }
    return composed;
  });
}

std::optional<PolicyDecision> first_must(c10::ArrayRef<std::optional<PolicyDecision>> decisions) {
  const auto* const found = std::find_if(decisions.begin(), decisions.end(),
                                         [](const auto& decision) { return decision && decision->is_must(); });
  return found == decisions.end() ? std::nullopt : *found;
}

}  // namespace ac2::policies::internal
