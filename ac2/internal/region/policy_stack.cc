#include "ac2/internal/region/policy_stack.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "ac2/internal/forms/functions_form.h"

namespace ac2::internal {

namespace {

std::string describe(const PolicyDecision& decision) {
  if (decision.form() == nullptr) {
    return to_string(decision.policy());
  }
  return as_functions(*decision.form()) != nullptr ? "SaveWithHooks" : described(*decision.form());
}

}  // namespace

PolicyDecision combine(PolicyDecision outer, const PolicyDecision& inner, const std::string& subject) {
  if (!outer.is_must()) {
    return inner;
  }
  if (inner.is_must() && !(inner == outer)) {
    const bool are_both_functions = outer.form() != nullptr && inner.form() != nullptr &&
                                    as_functions(*outer.form()) != nullptr && as_functions(*inner.form()) != nullptr;
    TORCH_CHECK(false, "Conflicting policies for ", subject, ": an outer scope says ", describe(outer),
                ", an inner one ", are_both_functions ? "another " : "", describe(inner),
                ". A MUST decision cannot be overridden: make one of them a PREFER, or decide for the tensor with "
                "tag_with_policy.");
  }
  return outer;
}

int64_t PolicyStack::push(PolicyInstance policy) {
  const int64_t id = next_id_++;
  policies_.push_back({id, static_cast<int64_t>(policies_.size()), std::move(policy)});
  policies_changed();
  return id;
}

void PolicyStack::remove(int64_t id) {
  policies_.erase(
      std::remove_if(policies_.begin(), policies_.end(), [id](const Entry& entry) { return entry.id == id; }),
      policies_.end());
  policies_changed();
}

void PolicyStack::policies_changed() {
  needs_calls_ = false;
  looks_at_operator_ = false;
  looks_at_names_ = false;
  may_drop_tensors_ = false;
  for (const Entry& entry : policies_) {
    needs_calls_ |= static_cast<bool>(entry.policy.fn);
    looks_at_operator_ |= static_cast<bool>(entry.policy.by_operator);
    looks_at_names_ |= static_cast<bool>(entry.policy.by_name);
    may_drop_tensors_ |=
        entry.policy.may_drop_tensors && (entry.policy.fn || entry.policy.by_operator || entry.policy.by_name);
  }
  constant_.reset();
  by_operator_.clear();
}

bool PolicyStack::saves_everything() const {
  return std::all_of(policies_.begin(), policies_.end(), [](const Entry& entry) {
    const std::optional<PolicyDecision>& decision = entry.policy.constant;
    return decision && !decision->form() &&
           (decision->policy() == CheckpointPolicy::MUST_SAVE || decision->policy() == CheckpointPolicy::PREFER_SAVE);
  });
}

template <class Ask>
ResolvedDecision PolicyStack::resolve(const OpFacts& facts, Ask&& ask) const {
  ResolvedDecision resolved{.decision = CheckpointPolicy::PREFER_SAVE};
  for (const Entry& entry : policies_) {
    if (!resolved.decision.is_must()) {
      resolved.scope_id = entry.id;
    }
    resolved.decision = combine(std::move(resolved.decision), ask(entry.policy), facts.name);
  }
  return resolved;
}

const ResolvedDecision* PolicyStack::known(const OpFacts& facts) {
  if (needs_calls_) {
    return nullptr;
  }
  if (!looks_at_operator_) {
    if (!constant_) {
      constant_ = resolve(facts, [](const PolicyInstance& policy) { return *policy.constant; });
    }
    return &*constant_;
  }
  const auto it = by_operator_.find(&facts);
  if (it != by_operator_.end()) {
    return &it->second;
  }
  ResolvedDecision resolved = resolve(facts, [&](const PolicyInstance& policy) { return *policy.decide(facts.op); });
  return &by_operator_.emplace(&facts, std::move(resolved)).first->second;
}

ResolvedDecision PolicyStack::decide(const OpFacts& facts, const OpContext& context) {
  return resolve(facts, [&](const PolicyInstance& policy) { return policy.decide(context); });
}

std::optional<PolicyDecision> PolicyStack::decide_name(const NamedTensor& tensor) {
  const std::string subject = "the tensor named \"" + std::string(tensor.name) + "\"";
  PolicyDecision decision = CheckpointPolicy::PREFER_SAVE;
  bool any = false;
  for (const Entry& entry : policies_) {
    std::optional<PolicyDecision> said = entry.policy.name_opinion(tensor);
    any |= said.has_value();
    if (!said) {
      said = entry.policy.decide_op_of(tensor);
    }
    if (said) {
      decision = combine(std::move(decision), *said, subject);
    }
  }
  return any ? std::optional(std::move(decision)) : std::nullopt;
}

}  // namespace ac2::internal
