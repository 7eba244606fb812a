// A step cut into stages: places in the program that few values cross, such as the ends of a network's layers.
//
// Keeping the values that cross such a place, its *boundary*, parts what must be computed again on one side from the
// other. Within a stage the choice is a minimum cut: a wanted result is either kept, at a price per byte, or its op
// runs again and wants its inputs. That is exact for the sum of both.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/btree_set.h"
#include "ac2/internal/planning/keep_simulator.h"
#include "ac2/internal/planning/step_graph.h"

namespace ac2::internal {

// A way to go about a stage, its boundary apart.
struct StageChoice {
  double replay_cost = 0;
  int64_t kept_bytes = 0;
  bool wants_previous = false;  // boundary: to replay ops of this stage
  bool replays = false;
  std::vector<uint32_t> kept;  // ops
};

struct Stage {
  std::vector<uint32_t> ops;       // in program order, those of the boundary among them
  std::vector<uint32_t> boundary;  // ops whose results cross the stage's end; kept together or not at all
  int64_t boundary_bytes = 0;
  bool boundary_wanted = false;    // by a hook
  uint32_t boundary_released = 0;  // last, as KeepSimulator::last_released
  uint32_t boundary_taken = 0;     // first
  int64_t wanted_bytes = 0;        // of all ops
  // Most that replaying it holds at once above what was there, and the same if the boundary before is kept.
  int64_t replay_bytes = 0, replay_bytes_from_kept = 0;

  StageChoice if_kept, if_replayed;  // the boundary
};

struct StagedStep {
  std::vector<Stage> stages;         // the last one's boundary is empty
  std::vector<uint8_t> always_kept;  // by op: its results are taken from far away
  int64_t saved_bytes = 0;           // whatever is chosen
};

class Staging {
 public:
  Staging(const StepGraph& graph, const KeepSimulator& simulator);

  // Results that are taken more than `span` relevant ops later are kept, so that they cross no boundary.
  StagedStep cut(uint32_t span) const;
  // All in one stage.
  StagedStep uncut() const;
  // Solves if_kept and if_replayed of each stage, at this price of a kept byte.
  void choose(StagedStep& step, double price) const;

  // Ops that may have to run again, and are open or recomputed.
  const std::vector<uint32_t>& relevant() const { return relevant_; }
  bool may_keep(uint32_t op) const;
  // Spans that make a difference, the largest first.
  std::vector<uint32_t> spans() const;

 private:
  // Of the places between ops, by the position of the op before: what crosses.
  struct Place {
    int64_t bytes = 0;
    int32_t not_to_keep = 0;  // ops whose results may not be kept
    uint32_t oldest = 0;      // position of the first op
  };

  void find_relevant();
  std::vector<Place> places(const std::vector<uint8_t>& always_kept) const;
  static absl::btree_set<uint32_t> boundaries(const std::vector<Place>& places);
  uint32_t maker(uint32_t value, const std::vector<uint8_t>& always_kept) const;
  void describe(StagedStep& step) const;
  StageChoice choose(const Stage& stage, const std::vector<uint8_t>& always_kept, double price,
                     bool boundary_kept) const;

  const StepGraph& graph_;
  const KeepSimulator& simulator_;
  std::vector<uint32_t> relevant_;
  std::vector<uint32_t> position_;  // by op: in relevant_, or ~0
  std::vector<uint32_t> last_use_;  // by position: of an op that takes a result
};

}  // namespace ac2::internal
