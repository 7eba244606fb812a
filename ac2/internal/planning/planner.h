// Which results of a step to keep within a number of bytes, so that the least is computed again. Knows sizes, costs and
// the graph; no tensors, nothing of LibTorch.
//
//   Planner planner(graph);
//   if (std::optional<KeepPlan> plan = planner.solve(bytes)) … plan->kept[op] …
//   else … planner.smallest().outcome.peak_bytes …
//
// A result is either kept for as long as backward wants it, or never; what is not kept is replayed once in a backward.
// The bytes of a plan are those that KeepSimulator finds, in forward and in backward.
//
// Exact on chains, where each op takes the result of the one before alone and backward goes through them in reverse:
// see boundary_search.h. On other graphs a heuristic: they are cut into stages, cheapest cuts within each for several
// prices of a byte, the programme above for the boundaries, and a local search on top. planner_test compares with all
// subsets. The same graph and bytes give the same plan.
//
// About O(n log n) for n ops, events and edges, if stages stay small. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ac2/internal/planning/keep_simulator.h"
#include "ac2/internal/planning/plan_stages.h"
#include "ac2/internal/planning/step_graph.h"

namespace ac2::internal {

struct KeepPlan {
  std::vector<Keep> kept;  // by op; of meaning for those with an open fate
  KeepOutcome outcome;
};

inline bool is_better(const KeepOutcome& a, const KeepOutcome& b) {
  return a.replay_cost != b.replay_cost ? a.replay_cost < b.replay_cost : a.peak_bytes < b.peak_bytes;
}

class Planner {
 public:
  explicit Planner(const StepGraph& graph);
  Planner(const Planner&) = delete;
  Planner& operator=(const Planner&) = delete;

  KeepPlan keep_all();
  KeepPlan keep_none();
  // Null if no plan within that many bytes was found.
  std::optional<KeepPlan> solve(int64_t bytes);
  // The plan with the fewest bytes that was found.
  const KeepPlan& smallest();

  // What it is to keep just these.
  KeepPlan evaluate(std::vector<Keep> kept);

  // No plan of that many bytes can replay less: Lagrange's relaxation, in which the bytes kept at the end of forward
  // may be more, at a price. For steps whose ops have one result each; 0 for more than
  // 2,000 ops.
  double least_cost(int64_t bytes);

  const KeepSimulator& simulator() const { return simulator_; }

 private:
  struct Relaxation {
    double cost = 0;                        // at the dearest price, what is kept too much being paid for
    double too_cheap = 0, dear_enough = 0;  // prices of a byte at which too much is kept, and no more than fits
  };
  Relaxation relax(int64_t bytes);
  // The best found by one way to search, if there is any.
  using Found = std::optional<KeepPlan>;
  // With a search for boundaries, at one price of a byte.
  Found search(StagedStep& step, double price, int64_t bytes);
  // At one price up to some stage, and at a lower one from there on: what is kept early is in the way for longer.
  Found search_prices(StagedStep& step, double early, double late, int64_t bytes);
  // With the stages as they are.
  Found search_chosen(const StagedStep& step, int64_t bytes);
  // Drops what saves least per byte, wherever it is.
  Found drop_cheapest(int64_t bytes);
  void find_prices();
  // Local searches: see plan_changes.cc.
  void keep_more(int64_t bytes, KeepPlan& plan);
  void make_fit(int64_t bytes, uint32_t but, KeepPlan& plan);
  void exchange(int64_t bytes, KeepPlan& plan);
  bool shrink();
  void find_smallest();

  const StepGraph& graph_;
  KeepSimulator simulator_;
  Staging staging_;
  std::vector<StagedStep> steps_;  // ways to cut the step into stages
  std::vector<double> prices_;     // of a kept byte, that are worth a try, from none to any
  std::vector<uint32_t> by_rate_;  // ops that may be kept, those first that save most per byte
  int64_t patience_ = 0;           // evaluations that a local search may make
  int64_t evaluations_ = 0;        // left
  std::optional<KeepPlan> smallest_;
  bool smallest_found_ = false;
};

}  // namespace ac2::internal
