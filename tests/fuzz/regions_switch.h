// Regions that are there or not, so that one and the same program runs plain and in regions.
//
//   Regions regions(&setting);  // or nullptr: nothing below has any effect
//   regions.begin();
//   regions.open(17);
//   …ops…
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ac2/form.h"
#include "ac2/offload.h"
#include "tests/support/regions.h"

namespace ac2::test {

// How a program is run in regions.
struct Setting {
  uint32_t policy = 0;  // of the outermost scopes; see Regions::policy_of
  // The one MUST of all policies: 0 MUST_SAVE, 1 SaveWithHooks, 2 MUST_RECOMPUTE, 3 MUST_CPU_OFFLOAD.
  uint32_t must = 0;
  bool verify = false;
  int64_t budget = 0;  // bytes for all of the program's regions; 0 for none
  bool names = false;  // all policies decide by name too
  // The program is one region, in which it goes on where it would begin another. `outermost` is its policy; without one
  // somebody else has opened it.
  bool one_region = false;
  std::optional<Policy> outermost = std::nullopt;
  bool inner_policies = true;  // inner scopes have policies of their own; else the outermost's
  bool tags = true;
  bool prefers_offload = false;  // PREFER_CPU_OFFLOAD is said for PREFER_SAVE
  OffloadOptions offload = {};
  // A budget may pack values where there is no room for them: in one bit, and into a form that has all of their bits
  // and counts nothing. A third form declines.
  bool packs = false;
  bool copies = false;  // a budget may copy values to the host before there is no room for them
  bool timeline = false;
  bool keeps = false;  // for the next backward, what one replays that leaves gradients out
  // All policies drop what last_use() has, as those of names and pack functions always do.
  bool drops = false;
  bool modules = false;  // policies that decide op by op are by_module, and decide by the module and the operator
  bool rests = false;    // regions record nothing while grad mode is off
  // Of all programs that run at once; without one each has a budget of its own.
  std::optional<MemoryBudget> shared_budget = std::nullopt;
  // Called for each region after forward and after each backward.
  std::function<void(const Trace&)> look = nullptr;
};

// The program's last reference to a tensor that an op has been called with, on this thread. User code that runs during
// the op may drop it.
at::Tensor& last_use();

// Whether this is what a budget says that is too small.
bool is_of_budget(const std::string& message);
// Whether an error ends the program: that of a budget, or of memory. Others are a refusal of the op.
bool ends_program(const std::string& message);

// Where a program ends before its last step.
struct ProgramEnd {
  size_t at_step = SIZE_MAX;  // it runs no step from this one on
  // Or else it ends where memory runs out in a step that writes nothing, keeps what it has, and says which step that
  // was.
  bool where_memory_runs_out = false;
  std::optional<size_t> ended_at = std::nullopt;
};

class Regions {
 public:
  // `end` may be null.
  explicit Regions(const Setting* setting, ProgramEnd* end = nullptr);
  ~Regions() { end(); }
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;

  // A new outermost region, after the end of the one before.
  void begin();
  // An inner scope.
  void open(uint32_t policy);
  // The innermost scope, unless it is the outermost.
  void close();
  void end();
  void disable();
  void enable();
  // The meaning of `decision`: 0 the MUST of the setting, 1 PREFER_SAVE or PREFER_CPU_OFFLOAD, 2
  // PREFER_RECOMPUTE; 3 to 5 the same, by a name.
  void tag(const at::Tensor& tensor, uint32_t decision);

  // A kernel that is no op is about to write to `tensor`. Verify mode refuses such a write that nobody tells of.
  void before_kernel(const at::Tensor& tensor) const;

  ProgramEnd& program_end() { return end_ != nullptr ? *end_ : no_end_; }

  // Of all regions so far.
  const std::vector<std::shared_ptr<const Trace>>& traces() const { return traces_; }

 private:
  // How many of them are.
  size_t outermost_scopes() const;
  PolicyDecision the_must() const;
  PolicyDecision decision_of(uint32_t decision) const;
  // 0 to 2 decide the same for all ops, the others by the op's index.
  Policy policy_of(uint32_t policy) const;
  Policy given_policy(uint32_t policy) const;
  Policy policy_by_module(uint32_t policy) const;
  Policy with_names(const Policy& policy) const;
  Forms room_forms() const;

  const Setting* setting_;
  ProgramEnd* end_;
  ProgramEnd no_end_;
  std::optional<MemoryBudget> budget_;
  std::vector<std::unique_ptr<PolicyScope>> scopes_;
  std::vector<std::shared_ptr<const Trace>> traces_;
  std::unique_ptr<DisableCheckpointing> disabled_;
};

}  // namespace ac2::test
