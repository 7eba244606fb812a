// What a run checkpoints with: nothing, a policy, a memory budget, or both.
//
//   gpt::Checkpointing plain;
//   gpt::Checkpointing by_policy = ac2::policies::recompute_all();
//   gpt::Checkpointing by_budget = gpt::checkpointing_by_name("40MiB");
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ac2/memory_budget.h"
#include "ac2/policy.h"
#include "ac2/scope.h"

namespace gpt {

struct Checkpointing {
  Checkpointing() = default;
  Checkpointing(std::nullopt_t) {}
  template <std::convertible_to<ac2::Policy> P>
  Checkpointing(P&& p) : policy(std::forward<P>(p)) {}
  explicit Checkpointing(ac2::MemoryBudget b) : budget(std::move(b)) {}

  bool none() const { return !policy && !budget; }

  std::optional<ac2::Policy> policy;
  std::optional<ac2::MemoryBudget>
      budget;  // shared by the regions of a step; without a policy all is saved while it fits
};

// What `fn` returns, run in a region as `checkpointing` says, or in none.
template <class Fn>
auto checkpointed(const Checkpointing& checkpointing, Fn&& fn) {
  if (checkpointing.none()) return fn();
  const ac2::ScopeOptions options{.shared_budget = checkpointing.budget};
  const ac2::PolicyScope scope =
      checkpointing.policy ? ac2::PolicyScope(*checkpointing.policy, options) : ac2::PolicyScope(options);
  return fn();
}

// "none" and the policies of every table, in its order.
const std::vector<std::string>& policy_names();

// "none", a policy of policies/by_name.h, or a memory budget as parse_bytes() takes it. Throws c10::Error that lists
// the names if it is neither.
Checkpointing checkpointing_by_name(const std::string& name);

// "40MiB", "512 KiB", "1.5GiB" or "65536": bytes. Throws c10::Error unless it is such a number, and positive.
int64_t parse_bytes(const std::string& text);

}  // namespace gpt
