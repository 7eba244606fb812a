// Regions: where ops are recorded, so that backward recomputes what a policy does not save.
//
//   at::Tensor y;
//   {
//     ac2::PolicyScope scope("recompute_all");
//     y = block->forward(x);
//   }
//   y.sum().backward();                       // replays the block's ops; block->forward does not run again
//
// Threads: a region belongs to the thread that opened it; ops of other threads are not recorded. Regions of different
// threads are independent. Backward may run on any thread, and on several at once.
//
// Guaranteed: gradients, outputs and generator states are bitwise identical to those of a program without regions, if
// each op computes the same result from the same inputs. This holds under retain_graph and create_graph, and with
// in-place writes and exceptions. Not guaranteed: a write that bypasses ATen, through data_ptr() or in another thread,
// is not seen. ac2/expose.h tells regions of such a write through a pointer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ac2/budget_option.h"
#include "ac2/form.h"
#include "ac2/memory_budget.h"  // IWYU pragma: export
#include "ac2/offload.h"
#include "ac2/policy.h"
#include "ac2/trace.h"

namespace ac2 {

namespace internal {
struct ScopeState;

// There is none: a list of them is `{}` and nothing else, whatever else an overload could make of braces.
class NoOption {
  NoOption() = delete;
};
}  // namespace internal

struct ScopeOptions {
  // The bytes that this region may hold for backward: a positive number, a text (ac2/bytes.h), or a MemoryBudget that
  // regions share.
  // memory_budget.h says what counts and what is dropped. Results that policies prefer to recompute are kept too while
  // they fit. On an inner scope the budget bounds the whole region from there on; of several budgets the smallest
  // rules. A budget that cannot be met is a c10::Error, from the op or from backward, that names the op and the bytes
  // it takes.
  //
  // Write 2 * ac2::GiB, 2_GiB (ac2::literals) or "2GiB": 2 << 30 overflows an int.
  BudgetOption memory_budget = {};
  // With a memory_budget in bytes, or without a policy and a budget: see MemoryBudget's constructor and
  // whatever_fits(). An error with a policy and no memory_budget, and with a MemoryBudget that was made without it. Set
  // it where several processes train together, so that those whose tensors have the same shapes drop the same values:
  // LibTorch does not tell a library in C++ of process groups.
  bool modelled_costs = false;
  // Checks the region, from here to its end. Each replayed value is compared with what forward computed, by a 64-bit
  // fingerprint of its bits, and each op is checked against what its schema says it writes. A difference is a
  // c10::Error, from the op or from backward, that names the op and a likely reason. Use it to try an op of your own.
  // The check reads every tensor several times. Saved values are not replayed, and so not compared. A SaveWithHooks may
  // return other bits than it was given: its values, and what is computed from them, are exempt. The environment
  // variable AC2_VERIFY=1 sets this option for every region.
  bool verify = false;
  // Keeps a log of the region, from here to its end, for to_chrome_trace(), explain() and write_report(): when each op
  // ran and was replayed, for whom, which policy decided, and every change of the bytes held. The log holds no tensor.
  // The log takes about 800 bytes for an op that is replayed once, for as long as the Trace lives. Without it no clock
  // is read, except by a budget that times ops.
  bool timeline = false;
  // How results that policies decide to offload leave the device and come back: see offload.h. The options by
  // themselves offload no results; with OffloadOptions::inputs they offload what the region takes from outside. On an
  // inner scope they hold from there on. A scope without them keeps those of the outer scopes, or the defaults.
  std::optional<OffloadOptions> offload = std::nullopt;
  // Called in backward, before an op is replayed, with the parameters that the op reads and whose bytes something else
  // has let go of, as FSDP does in Python. It has their bytes there when it returns, and sees to it that they are let
  // go of by the end of the backward. Without it such a replay is an error that names the parameter. The function may
  // communicate, so that all processes must set it alike and have the same shapes; the region then replays results that
  // the program still has too, because processes may differ in that. Under a memory_budget let the ranks agree
  // (ac2/rank_group.h): what a budget drops by times, or by the memory that is left, may differ between processes,
  // which may then wait for each other for ever. On an inner scope the function holds for the whole region from there
  // on.
  std::function<void(const std::vector<at::Tensor>&)> gather_units = nullptr;
  // For a backward in two halves: one that keeps its graph and computes gradients of some leaves (the inputs of a
  // pipeline's stage), and a later one for the others (its weights). What the first replays and a later one reads again
  // is then held, and counts in saved_bytes, until its graph goes. Without it nothing that was replayed stays, and the
  // later one replays it again. Under a memory budget, such as a scope without a policy has, the option would have no
  // effect, and is an error. On an inner scope it holds for the whole region.
  bool keep_for_next_backward = false;
  // Under a memory budget: the ways, besides computing again, in which the budget may do without the bytes of a value
  // that it has no room for. Of dropping the value and of each form that takes it the budget uses what costs least for
  // the bytes that are freed.
  //
  //   {.memory_budget = budget, .forms = {forms::host_memory(), forms::one_bit(), forms::quantized(8)}}
  //
  // If all of them are exact (Form::is_exact()), gradients have the bits of plain autograd. Otherwise numbers that are
  // unpacked differ by as much as the form says, and those that are computed again from them by what their ops make of
  // that.
  //
  // How long packing takes is measured, or modelled where the costs of ops are; so is the speed of copies to the host,
  // which begin before there is no room and run beside the ops. What a form packs into counts under the budget, and the
  // host's memory does not. A value that a form does not take, or takes no fewer bytes in, is given to the next one, or
  // dropped. Values are exact for as long as there is room, and what a MUST decision says stays. While a form packs,
  // the value and its packed form are both there, and both take memory. Values are packed before an op needs the room,
  // and not in the middle of an allocation: where memory itself runs out, as under whatever_fits() before it has
  // learned anything, values and their forms are dropped. TraceStats::packed_values counts.
  //
  // With a form that is not exact, results of ops that turn numbers into integers or bools (argmax, topk, x > 0,
  // max_pool2d, a mask, the pivots of an LU) are saved, also against MUST_RECOMPUTE: chosen again from other numbers
  // they would not fit to what was computed from the first ones. So the least budget of a program may be larger.
  //
  // On an inner scope the forms hold for results of ops of that scope, in place of those of the scope around it.
  // With a policy and no budget they would have no effect, and are an error. A form that is null, or there twice by its
  // name, is an error.
  Forms forms = {};
};

namespace internal {
// The policy of a wrapper that is given options alone: under a memory budget what fits is kept, and without one
// nothing.
Policy policy_for(const ScopeOptions& options);
}  // namespace internal

// The outermost scope of a thread opens a region and its trace; an inner one adds its policy to the region's stack.
// Policies are asked from the outermost to the innermost, starting at PREFER_SAVE. A PREFER_* replaces an earlier
// PREFER_*. A MUST_* (SaveWithHooks counts as one) replaces any PREFER_*, and nothing replaces it. Two different MUST
// decisions for one op are an error, "Conflicting policies".
class PolicyScope {
 public:
  // Keeps what fits: PolicyScope({.memory_budget = whatever_fits()}).
  [[nodiscard]] PolicyScope();
  // Throws c10::Error if an option or AC2_VERIFY is invalid.
  [[nodiscard]] explicit PolicyScope(Policy policy, ScopeOptions options = {});
  // Without a policy what fits is kept: all results are PREFER_SAVE, and only what the memory budget drops is
  // recomputed. Without a budget it is whatever_fits(), to which modelled_costs goes. An inner scope says the same of
  // the ops inside it, and its budget is one of the whole region from there on.
  [[nodiscard]] explicit PolicyScope(ScopeOptions options);
  // `PolicyScope scope({})`: no option is set.
  [[nodiscard]] explicit PolicyScope(std::initializer_list<internal::NoOption> none);
  // Throws c10::Error (only warns while another exception is in flight) if scopes are closed out of order or on a
  // thread other than their own. The scope is closed all the same, and the thread's other scopes stay as they are. A
  // warning says so too, because the error ends the program where destructors must not throw, as in a std::unique_ptr.
  ~PolicyScope() noexcept(false);
  // Neither copied nor moved. Not of a const scope, so that `PolicyScope({.forms = forms})` is no copy of one.
  PolicyScope(PolicyScope&) = delete;
  PolicyScope& operator=(const PolicyScope&) = delete;

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

// Runs fn(args...) inside a PolicyScope("recompute_all"), as torch.utils.checkpoint.checkpoint runs a function: of what
// fn computes, backward computes again what it needs. Returns what fn returns.
template <class Fn, class... Args>
decltype(auto) checkpoint(Fn&& fn, Args&&... args) {
  return apply_ac_policy_fn(std::forward<Fn>(fn), "recompute_all", std::forward<Args>(args)...);
}

// Decides for one tensor, whatever the policies say: how its value is held for backward. The value is the whole storage
// that `tensor` lies in, as it is now; a later in-place write makes another value, for which the policies decide. Of
// several tags of a value the last counts. Does nothing outside a region, so that a tagged model also runs without
// checkpointing.
//
// A RECOMPUTE decision does nothing to a value that cannot be computed again from what is held or alive at that moment.
// Such a value was computed by no op of the region, or, where the policies save, it was computed from values that are
// gone, written in place, or drawn at random (unless a policy looks at names: ac2/names.h).
//
// Throws c10::Error for an undefined tensor, and for a decision to save an inference tensor.
void tag_with_policy(const at::Tensor& tensor, PolicyDecision decision);

// Inside an active scope on this thread.
bool is_checkpoint_enabled();

// Inside an op that is being replayed on this thread.
bool is_recomputing();

// While an object of this class lives, the ops of its thread run as if no scope were open: they are not recorded, and
// autograd saves as it always does. If one of them overwrites a value of the region that backward uses, backward
// throws.
class DisableCheckpointing {
 public:
  [[nodiscard]] DisableCheckpointing();
  ~DisableCheckpointing();
  DisableCheckpointing(const DisableCheckpointing&) = delete;
  DisableCheckpointing& operator=(const DisableCheckpointing&) = delete;
};

}  // namespace ac2
