// The way in which a run checkpoints: with nothing, a policy, a memory budget, or both.
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

// The traces of regions, in the order in which the regions were opened.
using Traces = std::vector<std::shared_ptr<const ac2::Trace>>;

// The extent of a region.
enum class RegionSpan { kBlock, kStep, kLoop };

struct Checkpointing {
  Checkpointing() = default;
  Checkpointing(std::nullopt_t) {}
  template <std::convertible_to<ac2::Policy> P>
  Checkpointing(P&& p) : policy(std::forward<P>(p)) {}
  explicit Checkpointing(ac2::MemoryBudget b) : budget(std::move(b)) {}

  bool none() const { return !policy && !budget; }

  std::optional<ac2::Policy> policy;
  // Gradients are bitwise those without it.
  bool exact = true;
  // Shared by the regions of a step; without a policy all is saved while it fits.
  std::optional<ac2::MemoryBudget> budget;
  // How offloaded results leave the device.
  std::optional<ac2::OffloadOptions> offload;
  // Around each block of the model, around each step, or around all steps.
  RegionSpan span = RegionSpan::kBlock;
  // If set, regions keep timelines, and their traces are added there.
  Traces* traces = nullptr;
};

// A region as `checkpointing` says, open until it is destroyed, on this thread; null if it says none.
std::unique_ptr<ac2::PolicyScope> open_region(const Checkpointing& checkpointing);

// Runs `fn` in a region as `checkpointing` says, or in none, and returns its result.
template <class Fn>
auto checkpointed(const Checkpointing& checkpointing, Fn&& fn) {
  const std::unique_ptr<ac2::PolicyScope> region = open_region(checkpointing);
  return fn();
}

// "none" and the policies of every table, in its order.
const std::vector<std::string>& policy_names();

// The name of a budget without a number.
inline constexpr char kWhateverFits[] = "auto";

// "none", a policy of policies/by_name.h, a memory budget as parse_bytes() takes it or kWhateverFits; or all results in
// another form: "quantize8", "quantize4", "bfloat16" and "float8", which change gradients, "spill:DIRECTORY", in files,
// and "offload", in the host's memory; or "offload_inputs", which recomputes them from inputs that are there. Throws
// c10::Error that lists the names if it is none of these. With `modelled_costs` a budget takes the costs of ops from
// their shapes, as the processes of a job should.
Checkpointing checkpointing_by_name(const std::string& name, bool modelled_costs = false);

// "block", "step" or "loop". Throws c10::Error that lists them if it is none of these.
RegionSpan span_by_name(const std::string& name);

// "40MiB", "512 KiB", "1.5GiB" or "65536": bytes. Throws c10::Error unless it is such a number, and positive.
int64_t parse_bytes(const std::string& text);

}  // namespace gpt
