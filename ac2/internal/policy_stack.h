// The policies of nested scopes, resolved to one decision an op.
//
// Threads: belongs to the thread of its region.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/op_facts.h"
#include "ac2/policy.h"

namespace ac2::internal {

// The resolution rule, one step of it. Throws "Conflicting policies" for two different MUSTs; `subject` is what they
// are for.
PolicyDecision combine(PolicyDecision outer, const PolicyDecision& inner, const std::string& subject);

class PolicyStack {
 public:
  // Returns what remove() takes.
  int64_t push(Policy::Instance policy);
  void remove(int64_t id);

  // The decision for an operator if no policy needs to see the call, else null. May throw as combine() does, and what a
  // by_operator policy throws. Valid until the stack changes.
  const PolicyDecision* known(const OpFacts& facts);
  PolicyDecision decide(const OpFacts& facts, const OpContext& context);
  // Null if no policy says anything of the name. Else the rule over all of them: one that says nothing of the name says
  // what it said of the op that computed the tensor, or is left out if it would have to see that call again.
  std::optional<PolicyDecision> decide_name(const NamedTensor& tensor);
  // Some policy may have something to say of a name.
  bool looks_at_names() const { return looks_at_names_; }

 private:
  void policies_changed();

  std::vector<std::pair<int64_t, Policy::Instance>> policies_;
  int64_t next_id_ = 0;
  bool needs_calls_ = false;
  bool looks_at_operator_ = false;
  bool looks_at_names_ = false;
  // Of all operators, where nothing looks at them.
  std::optional<PolicyDecision> constant_;
  absl::flat_hash_map<const OpFacts*, PolicyDecision> by_operator_;
};

}  // namespace ac2::internal
