// Plans: a step is recorded once, and what to keep for backward is chosen for the whole of it.
//
//   const auto step = [&] { criterion(model->forward(x), y).backward(); };
//   const ac2::Plan plan = ac2::plan(step, 40 << 20);       // 40 MiB
//   for (…) {
//     at::Tensor loss;
//     {
//       ac2::PolicyScope scope(plan);                        // no budget need be given: the plan has its own
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
// With PlanOptions::forms a result may also be held in a form between forward and its use in backward (ac2/form.h): in
// fewer bits, in a file, or in the host's memory, where it leaves an accelerator once forward has made it and comes
// back before backward takes it. The cost of a plan is then the sum of what is replayed, of packing and unpacking, and
// of the time for which the step waits for copies because they do not fit beside its ops. What is on its way to the
// host and back counts in the bytes of the plan. With forms that are all exact, gradients have the bits of a step
// without a region.
//
// `step` is a step like any other and has its effects. `step` adds to gradients, and moves BatchNorm's statistics and
// generators on. `step` may leave out the backward, which is then assumed to go through the ops in reverse. Gradients
// are not touched then, but a tight plan may be too small for the real backward by some values: the budget then drops
// results, and more is replayed than the summary says. `step` may also run on tensors without data, `x.to(at::kMeta)`,
// to plan for a model that does not fit into this machine: see PlanOptions::modelled_costs.
//
// Threads: plan() records the ops of the calling thread. The plan is a value and may be used on any thread; each
// region that is entered with it follows the plan by itself, with a budget of its own. A StepPlanner belongs to one
// thread at a time.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ac2/bytes.h"
#include "ac2/form.h"
#include "ac2/plan_summary.h"
#include "ac2/policy.h"

namespace ac2 {

namespace internal {
struct PlannedStep;
}

struct PlanOptions {
  // Costs of ops come from their shapes (see MemoryBudget) instead of a clock, so that the same step always has the
  // same plan. A step with a tensor on the meta device always has such costs, because there is nothing to measure.
  bool modelled_costs = false;
  // The bytes that the recording of the step may hold, as ScopeOptions::memory_budget. Without a value plan() takes the
  // bytes of the plan, and a StepPlanner keeps everything, like a step without checkpointing.
  std::optional<Bytes> recording_budget = std::nullopt;
  // The ways, besides computing again, in which the plan may do without the bytes of a result (ac2/form.h):
  //   {.modelled_costs = true, .forms = {forms::host_memory(), forms::one_bit(), forms::quantized(8)}}
  // A form's bytes and costs are found by packing and unpacking each result of `step` once, or come from its estimate
  // where costs are modelled. Use modelled_costs on an accelerator: there a clock measures how long it takes to queue
  // an op. With a form that is not exact, what ops choose by the numbers is kept, as under a budget, also by a plan
  // that uses none. A form that is null, or there twice by its name, is an error. So is forms::host_memory() if no op
  // of the step has a result on a device from which values can be copied. Results on the meta device are taken to be on
  // such a device when the plan is followed.
  Forms forms = {};
  // With forms::host_memory(): the bytes that a copy moves, each way, in the time that the device takes for the step's
  // forward. For 25 GB/s over PCIe and a forward of 120 ms that is 25e9 * 0.12. Without a value a few results of the
  // step are copied while it is recorded, and timed beside its ops. That is an error where it cannot be: on the meta
  // device, and where the device's events cannot be timed.
  std::optional<double> copy_bytes_per_forward = std::nullopt;
  // Measures the memory of this device while the step is recorded, for PlanSummary::step_peak_bytes: the CPU's, or that
  // of the accelerator on which the step computes. All threads' allocations are measured.
  //
  // On the CPU an allocator of ac2's comes in front of LibTorch's for that, and stays there, as with whatever_fits().
  // On an accelerator the peaks in its allocator's statistics begin anew, as after
  // torch.cuda.reset_peak_memory_stats().
  //
  // An error for a device whose memory cannot be measured; beside forms that pack, because each result is packed while
  // the step is recorded; and of plan(), which records within the bytes of the plan and knows no step with everything
  // kept.
  std::optional<c10::Device> step_peak_on = std::nullopt;
  // How many such steps are in flight, as micro-batches are in a pipeline: their forwards have run, each in a region of
  // its own with the plan, and their backwards are to come, one after the other. The bytes of StepPlanner::plan() are
  // then for all of them together: one is at its peak, and the others hold what they hold when their backward begins,
  //   (in_flight - 1) * forward_bytes + peak_bytes <= bytes
  // and smallest() is the plan for which that sum is smallest. Of a plan that copies to the host's memory, what may
  // still be on its way when forward ends counts for the others too. A region that follows the plan has the peak_bytes
  // of its step as its budget. PlanSummary, summarize() and budget() are about one step. Below 1 is an error.
  int64_t in_flight = 1;
};

// A plan for a step, and what is known of it. A scope takes a plan in a policy's place, and its budget with it; so does
// all else that opens a scope with a policy. A plan is no part of another policy: composed policies refuse it. A plan
// is a value that does not change; copies are cheap.
//
// Threads: any.
class Plan : public Policy {
 public:
  const PlanSummary& summary() const;

  // A plan in a file, so that a job that starts again, or its other processes, need not make it anew:
  //
  //   plan.save("plan.json");
  //   ac2::PolicyScope scope(ac2::Plan::load("plan.json"));
  //
  // The file replaces an older one as a whole; a symbolic link is followed. Its format has a version and a checksum.
  // Whether the plan is one for the program's step is seen while the step runs, op by op, as for any plan.
  //
  // Throws c10::Error if the plan uses a form that has no name in a file (forms::functions()), if the file cannot be
  // written, and if `path` is that of something else than a regular file, such as a device or a pipe.
  void save(const std::string& path) const;
  // `own`: forms of the program's that the plan may use, by their names. Throws c10::Error if the file cannot be read,
  // is no plan, is of another version, is damaged, or has an operator or a form that this process does not have.
  static Plan load(const std::string& path, const Forms& own = {});

 private:
  friend class StepPlanner;
  explicit Plan(std::shared_ptr<const internal::PlannedStep> step);

  std::shared_ptr<const internal::PlannedStep> step_;
};

class StepPlanner {
 public:
  // Runs `step`. Throws c10::Error inside a region, if an option is invalid, if nothing was recorded that autograd
  // holds, and what `step` throws.
  explicit StepPlanner(const std::function<void()>& step, PlanOptions options = {});
  ~StepPlanner();
  StepPlanner(const StepPlanner&) = delete;
  StepPlanner& operator=(const StepPlanner&) = delete;

  using Plan = ac2::Plan;
  // `bytes`: of all steps in flight together (PlanOptions::in_flight). Throws c10::Error unless `bytes` is positive,
  // and if no plan is that small; the error then says how small one is.
  Plan plan(Bytes bytes);
  // The plan with the fewest bytes, in the same sense, that has been found. plan() may later find a smaller one.
  Plan smallest();

  // An op whose results may be kept or not.
  struct Op {
    std::string name;   // "aten::add.Tensor"
    int64_t index = 0;  // as OpContext::index()
    int64_t bytes = 0;  // of its results that backward wants
    double cost = 0;    // in the unit of PlanSummary
  };
  // The most that one step comes to if it keeps, of the results that a plan chooses among, those of exactly the ops for
  // which `keeps` returns true. The function is called in the order of the program. It is not asked about ops whose
  // results the step saves or recomputes whatever a plan chooses: because of a MUST_* decision, a tag, or a policy that
  // prefers to recompute, because they cannot be computed again, or because the step overwrites them.
  PlanSummary summarize(const std::function<bool(const Op&)>& keeps);
  // What a memory budget of so many bytes (ScopeOptions::memory_budget) would cost one step in place of a plan, as
  // computed from the recording: what would be held, and which ops would run again, some of them several times. No form
  // is used and no step_peak_bytes are known. The figures are those of a first step, in which the budget knows nothing
  // of what is to come; a step that repeats itself replays no more. A real step may differ: its costs are measured
  // anew, and it counts bytes that the program has let go of late. Throws c10::Error unless `bytes` is positive, if so
  // few bytes cannot be met, and if ops would run again more than 64 times on average; the error says how many bytes
  // would do where the step came to its end.
  PlanSummary budget(Bytes bytes);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// StepPlanner(step, options).plan(bytes), recorded within `bytes` unless the options say otherwise.
Plan plan(const std::function<void()>& step, Bytes bytes, PlanOptions options = {});

}  // namespace ac2
