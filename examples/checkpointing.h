// What a run checkpoints with: nothing, a policy, a memory budget, or both.
//
//   gpt::Checkpointing plain;
//   gpt::Checkpointing by_policy = ac2::policies::recompute_all();
//   gpt::Checkpointing by_budget = gpt::checkpointing_by_name("40MiB");
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ac2/memory_budget.h"
#include "ac2/offload.h"
#include "ac2/policy.h"
#include "ac2/scope.h"
#include "ac2/trace.h"

namespace gpt {

// Of regions, in the order in which they were opened.
using Traces = std::vector<std::shared_ptr<const ac2::Trace>>;

struct Checkpointing {
  Checkpointing() = default;
  Checkpointing(std::nullopt_t) {}
  template <std::convertible_to<ac2::Policy> P>
  Checkpointing(P&& p) : policy(std::forward<P>(p)) {}
  explicit Checkpointing(ac2::MemoryBudget b) : budget(std::move(b)) {}

  bool none() const { return !policy && !budget; }

  std::optional<ac2::Policy> policy;
  // Gradients are those without it, to the last bit.
  bool exact = true;
  // Shared by the regions of a step; without a policy all is saved while it fits.
  std::optional<ac2::MemoryBudget> budget;
  // How what the policy offloads leaves the device.
  std::optional<ac2::OffloadOptions> offload;
  // If set, regions keep timelines, and their traces are added there.
  Traces* traces = nullptr;
};

// What `fn` returns, run in a region as `checkpointing` says, or in none.
template <class Fn>
auto checkpointed(const Checkpointing& checkpointing, Fn&& fn) {
  if (checkpointing.none()) return fn();
  // Not in one initializer: GCC 12 then believes that the budget may be uninitialized (-Wmaybe-uninitialized).
  ac2::ScopeOptions options;
  options.memory_budget = checkpointing.budget;
  options.offload = checkpointing.offload;
  options.timeline = checkpointing.traces != nullptr;
  const ac2::PolicyScope scope =
      checkpointing.policy ? ac2::PolicyScope(*checkpointing.policy, options) : ac2::PolicyScope(options);
  if (Traces* traces = checkpointing.traces; traces != nullptr) {
    // A scope inside another has that one's.
    if (traces->empty() || traces->back() != scope.trace()) traces->push_back(scope.trace());
  }
  return fn();
}

// "none" and the policies of every table, in its order.
const std::vector<std::string>& policy_names();

// "none", a policy of policies/by_name.h, a memory budget as parse_bytes() takes it; or all results in another form:
// "quantize8", "quantize4", "bfloat16" and "float8", which change gradients, "spill:DIRECTORY", in files, and
// "offload", in the host's memory; or "offload_inputs", which recomputes them from inputs that are there. Throws
// c10::Error that lists the names if it is none of these.
Checkpointing checkpointing_by_name(const std::string& name);

// "40MiB", "512 KiB", "1.5GiB" or "65536": bytes. Throws c10::Error unless it is such a number, and positive.
int64_t parse_bytes(const std::string& text);

}  // namespace gpt
