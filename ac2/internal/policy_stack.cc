#include "ac2/internal/policy_stack.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace ac2::internal {

namespace {

std::string describe(const PolicyDecision& decision) {
  return decision.hooks() ? "SaveWithHooks" : to_string(decision.policy());
}

}  // namespace

PolicyDecision combine(PolicyDecision outer, const PolicyDecision& inner, const std::string& subject) {
  if (!outer.is_must()) {
    return inner;
  }
  TORCH_CHECK(!inner.is_must() || inner == outer, "Conflicting policies for ", subject, ": an outer scope says ",
              describe(outer), ", an inner one ", describe(inner),
              ". A MUST decision cannot be overridden: make one of them a PREFER, or decide for the tensor with "
              "tag_with_policy.");
  return outer;
}

int64_t PolicyStack::push(Policy::Instance policy) {
  const int64_t id = next_id_++;
  policies_.emplace_back(id, std::move(policy));
  policies_changed();
  return id;
}

void PolicyStack::remove(int64_t id) {
  policies_.erase(
      std::remove_if(policies_.begin(), policies_.end(), [id](const auto& policy) { return policy.first == id; }),
      policies_.end());
  policies_changed();
}

void PolicyStack::policies_changed() {
  needs_calls_ = false;
  looks_at_operator_ = false;
  looks_at_names_ = false;
  for (const auto& [_, policy] : policies_) {
    needs_calls_ |= static_cast<bool>(policy.fn);
    looks_at_operator_ |= static_cast<bool>(policy.by_operator);
    looks_at_names_ |= static_cast<bool>(policy.by_name);
  }
  constant_.reset();
  by_operator_.clear();
}

const PolicyDecision* PolicyStack::known(const OpFacts& facts) {
  if (needs_calls_) {
    return nullptr;
  }
  if (!looks_at_operator_) {
    if (!constant_) {
      PolicyDecision decision = CheckpointPolicy::PREFER_SAVE;
      for (const auto& [_, policy] : policies_) {
        decision = combine(std::move(decision), *policy.constant, facts.name);
      }
      constant_ = std::move(decision);
    }
    return &*constant_;
  }
  const auto it = by_operator_.find(&facts);
  if (it != by_operator_.end()) {
    return &it->second;
  }
  PolicyDecision decision = CheckpointPolicy::PREFER_SAVE;
  for (const auto& [_, policy] : policies_) {
    decision = combine(std::move(decision), *policy.decide(facts.op), facts.name);
  }
  return &by_operator_.emplace(&facts, std::move(decision)).first->second;
}

PolicyDecision PolicyStack::decide(const OpFacts& facts, const OpContext& context) {
  PolicyDecision decision = CheckpointPolicy::PREFER_SAVE;
  for (const auto& [_, policy] : policies_) {
    decision = combine(std::move(decision), policy.decide(context), facts.name);
  }
  return decision;
}

std::optional<PolicyDecision> PolicyStack::decide_name(const NamedTensor& tensor) {
  const std::string subject = "the tensor named \"" + std::string(tensor.name) + "\"";
  PolicyDecision decision = CheckpointPolicy::PREFER_SAVE;
  bool any = false;
  for (const auto& [_, policy] : policies_) {
    std::optional<PolicyDecision> said = policy.name_opinion(tensor);
    any |= said.has_value();
    if (!said) {
      said = policy.decide_op_of(tensor);
    }
    if (said) {
      decision = combine(std::move(decision), *said, subject);
    }
  }
  return any ? std::optional(std::move(decision)) : std::nullopt;
}

}  // namespace ac2::internal
