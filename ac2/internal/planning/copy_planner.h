// Chooses which results of a step to keep, which to compute again and which to copy to the host's memory and back,
// within a number of bytes, so that the step takes as little time as possible.
//
//   CopyPlanner copies(graph, planner, bytes_per_cost);
//   if (std::optional<CopyPlan> plan = copies.solve(bytes)) {
//     … plan->keep.kept[op], which may be Keep::kCopied …
//   }
//
// The time of a plan is that of its replays and of waiting for copies (copy_schedule.h has the model). The bytes of a
// plan count what is on its way to the host and back, as far as its window lets that be. The values that may be copied
// are those of StepGraph::Value::leaves.
//
// The search takes many sets of results to copy: more and more of those that a plan without copies keeps, of those that
// are dearest for their bytes, and of the first of the program. For each set the Planner chooses among the others,
// coarsely. A local search improves the best of these, the plan without copies and that without replays. Only results
// that can be there and back before they are used are in the sets.
//
// Guaranteed: a plan takes no more time than the Planner's or copies_alone() for the same bytes, by the same model, and
// is the Planner's where no copy helps; the same graph, speed and bytes give the same plan. Not guaranteed: the best
// plan.
//
// Cost: a few times that of a plan without copies. Lifetime: the graph and the planner must outlive it. Threads:
// not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ac2/internal/planning/copy_schedule.h"
#include "ac2/internal/planning/planner.h"
#include "ac2/internal/planning/step_graph.h"

namespace ac2::internal {

struct CopyPlan {
  KeepPlan keep;
  CopySpeedAndWindow copies;  // with a window of 0 if nothing is copied
};

class CopyPlanner {
 public:
  // `planner` is that of the graph.
  CopyPlanner(const StepGraph& graph, Planner& planner, double bytes_per_cost);
  CopyPlanner(const CopyPlanner&) = delete;
  CopyPlanner& operator=(const CopyPlanner&) = delete;

  // As of Planner.
  std::optional<CopyPlan> solve(int64_t bytes);
  const CopyPlan& smallest();
  // The least waiting of plans that replay nothing: the first results of the program are copied, as few as must be.
  // Null if too much is held even if all that may leave are copied.
  std::optional<CopyPlan> copies_alone(int64_t bytes);

 private:
  using Ops = std::vector<uint32_t>;

  std::vector<double> first_uses(double forward) const;
  // Ops whose results can be there and back before they are used, in the order of the program.
  void find_timely();
  // The orders in which more and more of the timely ops are copied.
  std::vector<Ops> orders(const KeepPlan& without_copies) const;
  // As many bytes as wished, in whole numbers of the largest value, and at least one of those if that leaves room.
  int64_t window_of(int64_t wish, int64_t bytes) const;
  // The step with these results in the host's memory.
  StepGraph without(const Ops& copied) const;
  CopyPlan as_plan(std::vector<Keep> kept, const Ops& copied, int64_t window);
  // Null if no plan within the bytes was found that copies these.
  std::optional<CopyPlan> plan_around(const Ops& copied, int64_t window, int64_t bytes);
  // The best plan that copies, before a local search. Null if none was found.
  std::optional<CopyPlan> search(int64_t bytes, const KeepPlan& without_copies);
  // The smallest plan is this one if it is smaller than those before.
  void note_small(const CopyPlan& plan);
  // By a local search that leaves the window as it is.
  void improve(int64_t bytes, CopyPlan& plan);

  const StepGraph& graph_;
  Planner& planner_;
  const double bytes_per_cost_;
  std::vector<int64_t> leaving_bytes_;  // by op: of its results that may leave
  Ops leaving_;                         // that have such results
  Ops timely_;
  int64_t largest_ = 0;  // the bytes of the largest value that may leave
  std::optional<CopyPlan> smallest_;
  bool smallest_found_ = false;
};

}  // namespace ac2::internal
