// Regions: where ops are recorded, so that backward recomputes what a policy does not save.
//
//   at::Tensor y;
//   {
//     ac2::PolicyScope scope;                 // "recompute_all"
//     y = block->forward(x);
//   }
//   y.sum().backward();                       // replays the block's ops; block->forward does not run again
//
// Threads: a region belongs to the thread that opened it; ops of other threads are not recorded. Regions of different
// threads are independent. Backward may run on any thread, and on several at once.
//
// Guaranteed: gradients, outputs and generator states are bit for bit those of a program without regions, for ops that
// compute the same result from the same inputs, under retain_graph, create_graph, in-place writes and exceptions too.
// Not guaranteed: a write that bypasses ATen (through data_ptr(), or in another thread) into a result that the region
// recomputes is not seen. Tag such a tensor MUST_SAVE.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "ac2/memory_budget.h"
#include "ac2/offload.h"
#include "ac2/policy.h"
#include "ac2/trace.h"

namespace ac2 {

namespace internal {
struct ScopeState;
}

struct ScopeOptions {
  // Bytes this region may hold for backward, positive; see memory_budget.h for what counts and what is dropped. Results
  // that policies prefer to recompute are kept too while they fit. On an inner scope it bounds the whole region from
  // there on; of several, the smallest rules. A budget that cannot be met is a c10::Error from the op, or from
  // backward, that names the op and the bytes it takes.
  std::optional<int64_t> memory_budget = std::nullopt;
  // The same, shared with other regions. At most one of the two may be set.
  std::optional<MemoryBudget> shared_budget = std::nullopt;
  // With memory_budget: see MemoryBudget's constructor.
  bool modelled_costs = false;
  // Checks the region, from here to its end, at the price of reading every tensor several times: each replayed value is
  // compared bit for bit (by a 64-bit fingerprint) with what forward computed, and each op with what its schema says it
  // writes. A difference is a c10::Error, from the op or from backward, that names the op and what may be the reason.
  // For trying an op of your own before trusting it. The environment variable AC2_VERIFY=1 sets it for every region.
  // What was kept through a SaveWithHooks that gives back other bits, and all that is computed from it, is exempt.
  bool verify = false;
  // Keeps a log of the region, from here to its end, for to_chrome_trace(), explain() and write_report(): when each op
  // ran and was replayed, for whom, which policy decided, and every change of the bytes held. The log keeps no tensor;
  // it takes about 600 bytes for an op that is replayed once, as long as the Trace lives. Without it no
  // clock is read, but by a budget that times ops.
  bool timeline = false;
  // How what policies decide to offload leaves the device and comes back: see offload.h. On an inner scope they hold
  // from there on; without them those of the outer scopes do, or the defaults.
  std::optional<OffloadOptions> offload = std::nullopt;
};

// The outermost scope of a thread opens a trace; an inner one adds its policy to the stack. Policies are asked from the
// outermost to the innermost, starting at PREFER_SAVE: a PREFER_* replaces an earlier PREFER_*; a MUST_* (SaveWithHooks
// counts as one) replaces any PREFER_* and is replaced by none; two different MUST decisions for one op are an error.
class PolicyScope {
 public:
  // Throws c10::Error if the dispatch key that ac2 needs is taken, or an option or AC2_VERIFY is invalid.
  explicit PolicyScope(Policy policy = "recompute_all", ScopeOptions options = {});
  // Without a policy: everything is saved, except for what a budget drops.
  explicit PolicyScope(ScopeOptions options);
  // Throws c10::Error (a warning while another exception is in flight) if scopes are closed out of order or on a thread
  // other than their own. The scope is closed all the same, and the thread's other scopes stay as they are.
  ~PolicyScope() noexcept(false);
  PolicyScope(const PolicyScope&) = delete;
  PolicyScope& operator=(const PolicyScope&) = delete;
  PolicyScope(PolicyScope&&) = delete;
  PolicyScope& operator=(PolicyScope&&) = delete;

  // Never null. May outlive the scope and backward.
  std::shared_ptr<const Trace> trace() const;

 private:
  std::shared_ptr<internal::ScopeState> state_;
};

// Runs fn(args...) inside a PolicyScope and returns what fn returns.
template <class Fn, class... Args>
decltype(auto) apply_ac_policy_fn(Fn&& fn, Policy policy, Args&&... args) {
  PolicyScope scope(std::move(policy));
  return std::invoke(std::forward<Fn>(fn), std::forward<Args>(args)...);
}

// Decides for one tensor, whatever the policy stack says: how the storage that `tensor` lies in is kept for backward,
// in its present version (a later in-place write is decided anew). Does nothing outside a region, so that a tagged
// model runs without checkpointing too. RECOMPUTE decisions do nothing to a tensor that cannot be computed again
// from what is kept or alive just then: that no op of the region computed, or that was, by ops that the policies save,
// computed from what is gone, written in place, or drawn at random (unless a policy looks at names: ac2/names.h). Of
// several tags of a tensor the last counts. Throws c10::Error for an undefined tensor, and for saving an inference
// tensor.
void tag_with_policy(const at::Tensor& tensor, PolicyDecision decision);

// Inside an active scope on this thread.
bool is_checkpoint_enabled();

// Inside an op that is being replayed on this thread.
bool is_recomputing();

// While one lives, this thread's ops run as if no scope were open: not recorded, and autograd saves as it always does.
// A value of the region that is overwritten meanwhile is an error in backward, if backward uses it.
class DisableCheckpointing {
 public:
  DisableCheckpointing();
  ~DisableCheckpointing();
  DisableCheckpointing(const DisableCheckpointing&) = delete;
  DisableCheckpointing& operator=(const DisableCheckpointing&) = delete;
};

}  // namespace ac2
