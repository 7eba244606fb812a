// Plans: a step is recorded once, and what to keep for backward is chosen for the whole of it.
//
//   const auto step = [&] { criterion(model->forward(x), y).backward(); };
//   const ac2::Policy policy = ac2::plan(step, 40 << 20);   // 40 MiB
//   for (…) {
//     at::Tensor loss;
//     {
//       ac2::PolicyScope scope(policy);                      // no budget need be given: the policy has its own
//       loss = criterion(model->forward(x), y);
//     }
//     loss.backward();
//   }
//
// The scope must begin where `step` began, as the outermost of its thread, because the plan counts ops from there. The
// scope may end earlier. The plan decides on results that policies prefer to save. MUST_* and PREFER_RECOMPUTE
// decisions of scopes inside the step, and tags, are part of the step, and the plan is made around them.
//
// The bound is on the bytes that the region holds for backward, in forward and in backward, as memory_budget.h counts
// them. That includes replayed results for as long as replays and backward want them, and all other results of an op
// that is replayed. The bound does not include what is not ac2's: parameters and inputs, gradients, the memory that
// kernels use, and the tensors that autograd has just taken out. Gradients are bitwise identical to those without a
// region.
//
// If the program leaves the plan (it runs another op, an op whose results have another size, or more ops), the rest of
// the region is not planned: results are kept while the budget allows, and dropped as in
// PolicyScope({.memory_budget = bytes}), so that the bound holds there too. Each plan warns of this once.
//
// A plan holds nothing for the sake of replays that are not planned, except for what a result was made from that is
// then written over. So, such results aside, a plan that replays nothing holds what training without a region holds.
//
// A result is either kept, from forward on, or replayed, once in a backward: a plan never runs an op a third time. The
// cost of a plan is the sum of what is replayed. For chains of ops the plan is the cheapest there is; for other
// programs a heuristic finds it, which docs/budget.md describes and measures.
//
// With PlanOptions::copy_bytes_per_forward a result may also be copied: it leaves an accelerator for the host's memory
// once forward has made it, and comes back before backward takes it (ac2/offload.h). The cost of a plan is then the sum
// of what is replayed and of the time for which the step waits for copies, because they do not fit beside its ops. What
// is on its way counts in the bytes of the plan.
//
// With PlanOptions::allow_inexact a result may also be packed into a narrower form between forward and its use in
// backward. The cost of a plan is then the sum of what is replayed and of packing and unpacking. Gradients are no
// longer bitwise identical to those without a region.
//
// `step` is a step like any other and has its effects. `step` adds to gradients, and moves BatchNorm's statistics and
// generators on. `step` may leave out the backward, which is then assumed to go through the ops in reverse. Gradients
// are not touched then, but a tight plan may be too small for the real backward by some values: the budget then drops
// results, and more is replayed than the summary says. `step` may also run on tensors without data, `x.to(at::kMeta)`,
// to plan for a model that does not fit into this machine: see PlanOptions::modelled_costs.
//
// Threads: plan() records the ops of the calling thread. The policy is a value and may be used on any thread; each
// region that is entered with it follows the plan by itself, with a budget of its own. A StepPlanner belongs to one
// thread at a time.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "ac2/policy.h"

namespace ac2 {

struct PlanOptions {
  // Costs of ops come from their shapes (see MemoryBudget) instead of a clock, so that the same step always has the
  // same plan. A step with a tensor on the meta device always has such costs, because there is nothing to measure.
  bool modelled_costs = false;
  // The bytes that the recording of the step may hold, as ScopeOptions::memory_budget. Without a value plan() takes the
  // bytes of the plan, and a StepPlanner keeps everything, like a step without checkpointing.
  std::optional<int64_t> recording_budget = std::nullopt;
  // Lets the plan copy results to the host's memory and back, where that takes less time than to compute them again:
  // the bytes that a copy moves, each way, in the time that the device takes for the step's forward. For 25 GB/s over
  // PCIe and a forward of 120 ms that is 25e9 * 0.12. (Costs of ops are in a unit of their own, so that a number of
  // bytes per second would say nothing about them.) Use modelled_costs with it: on an accelerator a clock measures how
  // long it takes to queue an op.
  //
  // An error if no op of the step has a result on a device from which values can be copied. Results on the meta device
  // are taken to be on such a device when the plan is followed.
  std::optional<double> copy_bytes_per_forward = std::nullopt;
  // Smaller results are not copied.
  int64_t copy_min_bytes = 1 << 20;
  // Measures the memory of this device while the step is recorded, for PlanSummary::step_peak_bytes: the CPU's, or that
  // of the accelerator on which the step computes. All threads' allocations are measured. plan(), which returns no
  // summary, measures nothing.
  //
  // On the CPU an allocator of ac2's comes in front of LibTorch's for that, and stays there, as with whatever_fits():
  // no other thread may allocate tensors while the first StepPlanner with this option is made. On an accelerator the
  // peaks in its allocator's statistics begin anew, as after torch.cuda.reset_peak_memory_stats().
  //
  // An error beside allow_inexact, for which each result is packed while the step is recorded.
  std::optional<c10::Device> step_peak_on = std::nullopt;
  // Lets the plan pack results into a narrower form, as ScopeOptions::allow_inexact lets a budget:
  //   {.allow_inexact = ac2::policies::quantized_form(8)}     // policies/quantize_ops.h
  // The form's bytes and, unless costs are modelled, its cost are found by packing each result of `step` once. Use
  // modelled_costs with it on an accelerator, as with copies. What ops choose by the numbers is kept then, as under a
  // budget, also by a plan that packs nothing. Any SaveWithHooks will do; anything else is an error, and
  // so are copies and step_peak_on beside it.
  std::optional<PolicyDecision> allow_inexact = std::nullopt;
};

// The most that a plan comes to, as computed from the recording. Where the program itself still has results when
// backward begins, in a local variable or a list, backward takes those as they are: a step then replays fewer ops, and
// holds fewer bytes in backward, than the summary says. The summary says exactly what happens where the program has let
// go of all that it computed but the loss.
struct PlanSummary {
  int64_t forward_bytes = 0;  // held when backward begins
  int64_t peak_bytes = 0;     // the most held at any time, and so a budget that the plan fits
  int64_t replayed_ops = 0;   // in a backward
  // The cost of the replays, and of all the step's ops outside backward. The unit is a tick of a clock, or, with
  // modelled_costs, a nanosecond of an imagined machine: only ratios mean anything.
  double replay_cost = 0;
  double forward_cost = 0;
  // Of the results that are copied to the host's memory and back: how many, their bytes, and the time for which the
  // step waits for copies, in the same unit. docs/budget.md has the model.
  int64_t copied_values = 0;
  int64_t copied_bytes = 0;
  double copy_wait = 0;
  // The most that all tensors on PlanOptions::step_peak_on take at any time in a step that follows the plan: parameters
  // and inputs, gradients, results that the program has, what the region holds and computes again, and the memory of
  // kernels. The number is for a step that begins as the recorded one did, with the same gradients there or not, in a
  // region that lasts as long. Where the region ends before backward the step may take less. docs/budget.md says how
  // near the number comes.
  //
  // On the CPU, tensors count that were allocated while the step was recorded, or that an op of the step takes. Memory
  // that kernels take past LibTorch's allocator does not count.
  //
  // Empty without the option, if the device's allocator has no statistics (the meta device, and accelerators before
  // LibTorch 2.9), if the step ran no backward, if the plan copies results, if the recording had to drop results for
  // its budget, and if another step was measured at the same time.
  std::optional<int64_t> step_peak_bytes = std::nullopt;
  // Of these, the bytes that were there when the step began.
  std::optional<int64_t> step_start_bytes = std::nullopt;
  // Of the results that are packed into a narrower form: how many, their bytes before they are packed, and the cost of
  // packing and unpacking, in the same unit.
  int64_t narrowed_values = 0;
  int64_t narrowed_bytes = 0;
  double narrow_cost = 0;
};

class StepPlanner {
 public:
  // Runs `step`. Throws c10::Error inside a region, if an option is invalid, if nothing was recorded that autograd
  // holds, and what `step` throws.
  explicit StepPlanner(const std::function<void()>& step, PlanOptions options = {});
  ~StepPlanner();
  StepPlanner(const StepPlanner&) = delete;
  StepPlanner& operator=(const StepPlanner&) = delete;

  struct Plan {
    Policy policy;
    PlanSummary summary;
  };
  // Throws c10::Error unless `bytes` is positive, and if no plan is that small; the error then says how small one is.
  Plan plan(int64_t bytes);
  // The plan with the fewest bytes that has been found. plan() may later find a smaller one.
  Plan smallest();

  // An op whose results may be kept or not.
  struct Op {
    std::string name;   // "aten::add.Tensor"
    int64_t index = 0;  // as OpContext::index()
    int64_t bytes = 0;  // of its results that backward wants
    double cost = 0;    // in the unit of PlanSummary
  };
  // The most that a step comes to if it keeps the results of exactly those ops for which `keeps` returns true. The
  // function is called in the order of the program.
  PlanSummary summarize(const std::function<bool(const Op&)>& keeps);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// StepPlanner(step, options).plan(bytes).policy, recorded within `bytes` unless the options say otherwise.
Policy plan(const std::function<void()>& step, int64_t bytes, PlanOptions options = {});

// A plan in a file, so that a job that starts again, or its other processes, need not make it anew:
//
//   ac2::save_plan(policy, "plan.json");
//   ac2::PolicyScope scope(ac2::load_plan("plan.json"));
//
// The file replaces an older one as a whole; a symbolic link is followed. Its format has a version and a checksum.
// Whether the plan is one for the program's step is seen while the step runs, op by op, as for any plan. Safe to call
// from any thread.
//
// Throws c10::Error if `plan` is not the policy of a plan, if it packs results in a form other than
// policies::quantized_form, if the file cannot be written, and if `path` is that of something else than a regular file,
// such as a device or a pipe.
void save_plan(const Policy& plan, const std::string& path);
// Throws c10::Error if the file cannot be read, is no plan, is of another version, is damaged, or has an operator or a
// form that this process does not have.
Policy load_plan(const std::string& path);

}  // namespace ac2
