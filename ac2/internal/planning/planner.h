// Chooses which results of a step to keep, within a number of bytes, so that as little as possible is computed again.
//
//   Planner planner(graph);
//   if (std::optional<KeepPlan> plan = planner.solve(bytes)) {
//     … plan->kept[op] …
//   } else {
//     … planner.smallest().outcome.total_bytes …
//   }
//
// A result is either kept for as long as backward wants it, or not at all. A result that is not kept is replayed once
// in a backward. The bytes of a plan are those that KeepSimulator finds, in forward and in backward, of all steps in
// flight (StepGraph::in_flight).
//
// Guaranteed: a plan stays within the bytes, as far as KeepSimulator is right; the same graph and bytes give the same
// plan; no plan that keeps all or nothing and is within the bytes replays less. With one step in flight the plan is the
// best there is on chains, where each op takes the result of the one before alone and backward goes through them in
// reverse (boundary_search.h says up to how many bytes). With several, no plan replays less that keeps the boundaries
// between all stages of a cut, or every second, third or fourth, and nothing else. Not guaranteed: the best plan for
// other graphs, or any plan for every budget that could be met. There it is a heuristic: the graph is cut into stages;
// within each stage cheapest cuts are found for several prices of a byte; search_boundaries() chooses between stages;
// and a local search improves what comes out. planner_test compares with all subsets.
//
// With several steps in flight, all but one hold what is kept until their backward, and one is at its peak. The bytes
// are split between the two in several ways, and each way is searched as above (planner_in_flight.cc).
// planner_in_flight_test compares with all subsets.
//
// Cost: about O(n log n) for n ops, events and edges if stages stay small. Knows sizes, costs and the graph, and
// nothing of LibTorch. Lifetime: the graph must outlive the planner. Threads: not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ac2/internal/planning/boundary_search.h"
#include "ac2/internal/planning/copy_schedule.h"
#include "ac2/internal/planning/keep_simulator.h"
#include "ac2/internal/planning/plan_stages.h"
#include "ac2/internal/planning/step_graph.h"

namespace ac2::internal {

struct KeepPlan {
  std::vector<Keep> kept;  // by op; read for ops whose fate is open
  KeepOutcome outcome;
};

inline bool is_better(const KeepOutcome& a, const KeepOutcome& b) {
  return a.extra_cost() != b.extra_cost() ? a.extra_cost() < b.extra_cost() : a.total_bytes < b.total_bytes;
}

class Planner {
 public:
  explicit Planner(const StepGraph& graph);
  Planner(const Planner&) = delete;
  Planner& operator=(const Planner&) = delete;

  KeepPlan keep_all();
  KeepPlan keep_none();
  // The best plan that was found, or null if none was found within that many bytes.
  std::optional<KeepPlan> solve(int64_t bytes);
  // The same in a small part of the time: with few starts, and without a local search.
  std::optional<KeepPlan> sketch(int64_t bytes);
  // The plan with the fewest bytes that was found so far, after a search for small ones.
  const KeepPlan& smallest();
  // The same in a part of the time, without a local search.
  const KeepPlan& sketch_smallest();

  // The plan that keeps these results and no others, completed.
  KeepPlan evaluate(std::vector<Keep> kept);

  // For plans that hold results in forms, which FormPlanner makes.
  void set_copies(const CopySpeedAndWindow& copies) { simulator_.set_copies(copies); }
  // A form, and the ops whose results it may hold, in the order in which they are tried.
  struct FormTries {
    uint8_t form = 0;
    std::vector<uint32_t> ops;
  };
  // Holds one result in a form, keeps or replays it in place of what the plan does with it, and makes the others fit,
  // while that makes the plan better.
  void try_forms(int64_t bytes, const std::vector<FormTries>& tries, KeepPlan& plan);

  // A lower bound: no plan of that many bytes replays less. The bound is Lagrange's relaxation, in which more bytes may
  // be kept at the end of forward, at a price. For steps whose ops have one result each. 0, which says nothing, if more
  // than 2,000 ops may have to run again.
  double least_cost(int64_t bytes);

  const KeepSimulator& simulator() const { return simulator_; }

 private:
  struct Relaxation {
    double cost = 0;         // the largest lower bound that any price gave
    double too_cheap = 0;    // a price of a byte at which more is kept than fits
    double dear_enough = 0;  // a price at which no more is kept than fits
  };
  // `kept`: the bytes that may be kept at the end of forward.
  Relaxation relax(int64_t kept);
  // The best plan that one kind of search found, or null.
  using Found = std::optional<KeepPlan>;
  // The searches below are for plans within `bytes` of which one step takes about `room`.

  // Chooses within stages at one price of a byte, and then searches for boundaries.
  Found search(StagedStep& step, double price, const StepRoom& room, int64_t bytes);
  // The same at one price up to some stage and at a lower one after it, because what is kept early is held for longer.
  Found search_prices(StagedStep& step, double early, double late, const StepRoom& room, int64_t bytes);
  // Searches for boundaries with the choices within stages as they are.
  Found search_chosen(const StagedStep& step, const StepRoom& room, int64_t bytes);
  // Drops the results that save least per byte, wherever they are, until the rest fits.
  Found drop_cheapest(int64_t bytes);
  void find_prices();
  // Plans within that many bytes for local searches to start from. Empty if none was found.
  std::vector<KeepPlan> find_starts(int64_t bytes);
  // Adds the plans of searches at many prices. `kept`: about what one step may keep at the end of forward.
  void search_thoroughly(const StepRoom& room, int64_t kept, int64_t bytes, std::vector<KeepPlan>& starts);

  // Several steps in flight, in planner_in_flight.cc.

  bool is_one_in_flight() const { return graph_.in_flight == 1; }
  // The room of one step that takes `peak` of the bytes at its peak.
  StepRoom room_of(int64_t peak, int64_t bytes) const;
  // The same in ways that are worth a try; of one step in flight the only one.
  std::vector<StepRoom> few_rooms(int64_t bytes);
  // That of the best plan among those that a short search finds in many rooms, and adds to `starts` if it is in
  // `bytes`.
  StepRoom search_rooms(int64_t bytes, std::vector<KeepPlan>& starts);
  // Plans that keep the boundaries between stages and nothing else, or every second, third or fourth.
  std::vector<KeepPlan> keep_boundaries();
  // The most that a step takes at its peak if it keeps all or nothing: a plan needs no more.
  int64_t highest_peak();
  // Peaks of one step that may be worth a try.
  std::vector<int64_t> peaks(int64_t bytes, size_t count);
  // Looks for plans that hold little until backward begins, for many peaks.
  void hold_little();

  // Local searches, in planner_local_search.cc.

  // Keeps results that the plan drops, as many as fit.
  void keep_more(int64_t bytes, KeepPlan& plan);
  // The same for these ops alone, whose results are then held in this way.
  void keep_more_as(Keep way, const std::vector<uint32_t>& ops, int64_t bytes, KeepPlan& plan);
  // Drops results that save least per byte, but not those of `except`, until the rest fits.
  void make_fit(int64_t bytes, uint32_t except, KeepPlan& plan);
  // Treats one op so and makes the others fit. Returns whether that makes the plan better, which it then is.
  bool try_as(Keep keep, uint32_t op, const std::vector<FormTries>& tries, int64_t bytes, KeepPlan& plan);
  // Keeps one result in place of others, and the other way round, while that makes the plan better.
  void exchange(int64_t bytes, KeepPlan& plan);
  // Changes one op of the smallest plan, or two. Returns whether that gave a smaller one.
  bool shrink();

  const StepGraph& graph_;
  KeepSimulator simulator_;
  Staging staging_;
  std::vector<StagedStep> steps_;  // the step, cut into stages in several ways
  std::vector<double> prices_;     // prices of a kept byte that are worth a try, from 0 to infinite
  std::vector<uint32_t> by_rate_;  // ops that may be kept; those that save most per byte come first
  int64_t patience_ = 0;           // evaluations that one local search may make
  int64_t evaluations_ = 0;        // how many are left of them
  std::optional<KeepPlan> smallest_;
  bool smallest_found_ = false;
};

}  // namespace ac2::internal
