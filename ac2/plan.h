// A step is recorded once, and what to keep for backward is chosen for the whole of it.
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
// The scope must begin where `step` began, as the outermost of its thread: the plan goes by the number of the op. It
// may end earlier. What the plan decides on are results that policies prefer to save; MUST_* and PREFER_RECOMPUTE
// decisions of scopes inside, and tags, are part of the step, and planned around.
//
// What is bounded: the bytes that the region holds for backward, as memory_budget.h counts them, in forward and in
// backward. That takes in replayed results, for as long as replays and backward want them, and what an op that is
// replayed makes besides. It leaves out what is not ac2's: parameters and inputs, gradients, what kernels use, and the
// tensors that autograd has just taken out. Gradients are those without a region, to the last bit.
//
// If the program takes another way (another op at a number, results of another size, more ops), the rest of the region
// is not planned: results are kept while the budget allows, and dropped as in PolicyScope({.memory_budget = bytes}). So
// the bytes hold there too. There is one warning in the life of a plan.
//
// A result is kept or not, from forward on, and what is not kept is replayed once in a backward: a plan never runs an
// op a third time. Costs are compared by the sum of what is replayed. The plan is the cheapest for chains of ops; for
// other programs it is found by a heuristic, which docs/budget.md describes and measures.
//
// `step` is a step like any other and leaves its traces: gradients are added to, BatchNorm's statistics and generators
// go on. It may leave out the backward, which is then taken to go through the ops in reverse; nothing but generators
// and the like is touched then. It may also run on tensors without data, `x.to(at::kMeta)`, so that a model that does
// not fit into this machine is planned: see PlanOptions::modelled_costs.
//
// Threads: plan() records the ops of the calling thread. A policy is a value and may be used on any thread; each region
// entered with it follows the plan by itself, with a budget of its own. A StepPlanner belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "ac2/policy.h"

namespace ac2 {

struct PlanOptions {
  // Costs of ops are computed from their shapes (see MemoryBudget) instead of being measured as the step runs: the same
  // step has the same plan. Always so for steps with a tensor on the meta device, on which nothing can be measured.
  bool modelled_costs = false;
  // Bytes within which the step is recorded, as ScopeOptions::memory_budget; plan() takes those of the plan. Without
  // them the recording keeps everything, like a step without checkpointing.
  std::optional<int64_t> recording_budget = std::nullopt;
};

// What a plan comes to, as computed from the recording.
struct PlanSummary {
  int64_t forward_bytes = 0;  // held when backward begins
  int64_t peak_bytes = 0;     // most held at any time; the plan fits any budget from here on
  int64_t replayed_ops = 0;
  // Of the replays, and of all the step's ops outside backward. In ticks of a clock, or nanoseconds of an imagined
  // machine if costs are modelled: only ratios mean anything.
  double replay_cost = 0;
  double forward_cost = 0;
};

class StepPlanner {
 public:
  // Runs `step`. Throws c10::Error inside a region, if nothing was recorded that autograd holds, and what `step`
  // throws.
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
  // The one with the fewest bytes that can be found.
  Plan smallest();

  // Of an op that may be kept or not.
  struct Op {
    std::string name;   // "aten::add.Tensor"
    int64_t index = 0;  // as OpContext::index()
    int64_t bytes = 0;  // of its results that backward wants
    double cost = 0;    // in the unit of PlanSummary
  };
  // To look at: what it would be to keep exactly the results of those ops for which `keeps` returns true. It is asked
  // in the order of the program.
  PlanSummary summarize(const std::function<bool(const Op&)>& keeps);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// StepPlanner(step, options).plan(bytes).policy, recorded within `bytes` unless the options say otherwise.
Policy plan(const std::function<void()>& step, int64_t bytes, PlanOptions options = {});

}  // namespace ac2
