// Chooses which results of a step to keep, which to compute again and which to pack into a narrower form, within a
// number of bytes, so that the step takes as little time as possible.
//
//   NarrowPlanner forms(graph, planner);
//   if (std::optional<KeepPlan> plan = forms.solve(bytes)) {
//     … plan->kept[op], which may be Keep::kNarrowed …
//   }
//
// The time of a plan is that of its replays, of packing, and of unpacking for each use. The values that may be packed
// are those of StepGraph::Value::narrows.
//
// The search takes many sets of results to pack. They are of those for which packing costs less, for the bytes that it
// frees, than their own op: more and more of those that a plan without forms keeps, of those that it computes again, of
// the dearest, and of the first of the program; and, once, all results. For each set the Planner chooses among the
// others, coarsely. A local search improves the best of these and the plan without forms.
//
// Guaranteed: a plan takes no more time than the Planner's for the same bytes, by the same model, and is the Planner's
// where no form helps; the same graph gives the same plan. Not guaranteed: the best plan. narrow_planner_test compares
// with all ways to keep, replay and pack.
//
// Cost: a few times that of a plan without forms. Lifetime: the graph and the planner must outlive it. Threads: not
// thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ac2/internal/planning/planner.h"
#include "ac2/internal/planning/step_graph.h"

namespace ac2::internal {

class NarrowPlanner {
 public:
  // `planner` is that of the graph.
  NarrowPlanner(const StepGraph& graph, Planner& planner);
  NarrowPlanner(const NarrowPlanner&) = delete;
  NarrowPlanner& operator=(const NarrowPlanner&) = delete;

  // As of Planner.
  std::optional<KeepPlan> solve(int64_t bytes);
  const KeepPlan& smallest();

 private:
  using Ops = std::vector<uint32_t>;

  // The sets of ops whose results are packed.
  std::vector<Ops> sets(const KeepPlan& without_forms) const;
  // The step with these results in their form.
  StepGraph with_forms(const Ops& narrowed) const;
  KeepPlan as_plan(std::vector<Keep> kept, const Ops& narrowed);
  // The best plan that packs, before a local search. Null if none was found.
  std::optional<KeepPlan> search(int64_t bytes, const KeepPlan& without_forms);
  // The smallest plan is this one if it is smaller than those before.
  void note_small(const KeepPlan& plan);

  const StepGraph& graph_;
  Planner& planner_;
  std::vector<int64_t> freed_;  // by op: the bytes that packing its results frees
  Ops may_narrow_;              // ops whose results may be packed
  Ops worthwhile_;              // of these, those of which packing costs less for the bytes than their op
  std::optional<KeepPlan> smallest_;
  bool smallest_found_ = false;
};

}  // namespace ac2::internal
