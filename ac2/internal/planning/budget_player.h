// BudgetPlayer computes what a memory budget makes of a recorded step: which bytes are held, and which ops are run
// again.
//
//   const BudgetOutcome outcome = BudgetPlayer(graph).play(64 << 20);
//   if (outcome.missing_bytes == 0) … outcome.replays …
//
// The player goes through the events of the step and drives an evictor (../eviction/evictor.h) with the calls with
// which a region drives it, on numbers instead of tensors:
//
// - The program has the result of an op until the last op of forward that takes it has run. Until then dropping the
//   result frees its bytes, and costs nothing.
// - When the first backward begins, the program has let go of all results.
// - What a policy saves are bytes that nobody may drop, and so are those of what the region took from outside and alone
//   keeps, once the last op of forward that takes them has run.
// - A replay goes depth first, from the values that are there, and its inputs are pinned.
//
// Guaranteed: the same step and the same bytes give the same outcome. Not guaranteed: that a region drops the same
// values. A region has other times, a program may let go of results later, and where a replay has no room at the first
// try a region looks for an order that takes fewer bytes, which the player does not.
//
// Threads: any; a player changes nothing of the step.
#pragma once

#include <cstdint>

#include "ac2/internal/planning/step_graph.h"

namespace ac2::internal {

struct BudgetOutcome {
  int64_t forward_bytes = 0;  // held when the first backward begins
  int64_t peak_bytes = 0;     // the most held at any time
  int64_t replays = 0;
  double replay_cost = 0;
  // The budget with which the step would have gone on where it ended for lack of room; 0 if it did not.
  int64_t missing_bytes = 0;
  // The step was ended, because its ops would have run very often.
  bool replays_without_end = false;
};

class BudgetPlayer {
 public:
  // More than this on average, and the step is ended.
  static constexpr int64_t kMostReplaysOfAnOp = 64;

  // `graph` must outlive the player.
  explicit BudgetPlayer(const StepGraph& graph) : graph_(graph) {}

  // `bytes` is positive.
  BudgetOutcome play(int64_t bytes) const;

 private:
  const StepGraph& graph_;
};

}  // namespace ac2::internal
