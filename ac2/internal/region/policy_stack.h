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
#include "ac2/internal/operators/op_facts.h"
#include "ac2/policy_instance.h"

namespace ac2::internal {

// The resolution rule, one step of it. Throws "Conflicting policies" for two different MUSTs; `subject` is what they
// are for.
PolicyDecision combine(PolicyDecision outer, const PolicyDecision& inner, const std::string& subject);

// A decision, and the id in the stack of the policy that decided, or -1 if no policy was asked.
struct ResolvedDecision {
  PolicyDecision decision;
  int64_t scope_id = -1;
};

class PolicyStack {
 public:
  struct Entry {
    int64_t id = 0;
    int64_t depth = 0;  // how many were open when it came
    PolicyInstance policy;
  };

  // Returns what remove() takes.
  int64_t push(PolicyInstance policy);
  void remove(int64_t id);
  // From the outermost to the innermost.
  const std::vector<Entry>& entries() const { return policies_; }

  // The decision for an operator if no policy needs to see the call, else null. May throw as combine() does, and what a
  // by_operator policy throws. Valid until the stack changes.
  const ResolvedDecision* known(const OpFacts& facts);
  ResolvedDecision decide(const OpFacts& facts, const OpContext& context);
  // Null if no policy says anything about the name. Otherwise the rule over all policies. A policy that says nothing
  // about the name counts with what it said about the op that computed the tensor, or is left out if it would have to
  // see that call again.
  std::optional<PolicyDecision> decide_name(const NamedTensor& tensor);
  // Some policy may have something to say of a name.
  bool looks_at_names() const { return looks_at_names_; }
  // All policies save the results of every op as they are.
  bool saves_everything() const;
  // Some policy may drop tensors that an op reads while the op runs.
  bool may_drop_tensors() const { return may_drop_tensors_; }

 private:
  void policies_changed();
  // `ask` gives the decision of one policy.
  template <class Ask>
  ResolvedDecision resolve(const OpFacts& facts, Ask&& ask) const;

  std::vector<Entry> policies_;
  int64_t next_id_ = 0;
  bool needs_calls_ = false;
  bool looks_at_operator_ = false;
  bool looks_at_names_ = false;
  bool may_drop_tensors_ = false;
  // The decision for all operators, if no policy looks at them.
  std::optional<ResolvedDecision> constant_;
  absl::flat_hash_map<const OpFacts*, ResolvedDecision> by_operator_;
};

}  // namespace ac2::internal
