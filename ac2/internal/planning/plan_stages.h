// Cuts a step into stages, at places in the program that few values cross, such as the ends of a network's layers.
//
//   const Staging staging(graph, uses);
//   StagedStep step = staging.cut(staging.spans()[0]);
//   staging.choose(step, price);
//
// The values that cross such a place are its *boundary*. If they are kept, the ops that must run again before the place
// and those that must run again after it have nothing to do with each other. Within a stage the choice is a minimum
// cut: a wanted result is either kept, at a price per byte, or its op runs again and wants its inputs. The cut is exact
// for the sum of the price and the cost of replays.
//
// Lifetime: the graph and the uses must outlive a Staging. Threads: const functions may run at the same time.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/btree_set.h"
#include "ac2/internal/planning/step_graph.h"
#include "ac2/internal/planning/step_uses.h"

namespace ac2::internal {

// The choice for a stage, apart from its boundary.
struct StageChoice {
  double replay_cost = 0;
  int64_t kept_bytes = 0;
  bool wants_previous = false;  // replays of this stage take values of the boundary before it
  bool replays = false;         // an op of this stage is replayed
  std::vector<uint32_t> kept;   // ops
};

struct Stage {
  std::vector<uint32_t> ops;       // in program order, including those of the boundary
  std::vector<uint32_t> boundary;  // ops whose results cross the stage's end; kept together or not at all
  int64_t boundary_bytes = 0;
  bool boundary_wanted = false;    // a hook wants one of its values
  uint32_t boundary_released = 0;  // the latest StepUses::last_released() of its values
  uint32_t boundary_taken = 0;     // the earliest StepUses::first_taken() of its values
  int64_t wanted_bytes = 0;        // StepUses::wanted_bytes() of all ops
  // The most that a replay of the stage holds at once on top of what was there before it, and the same if the boundary
  // before the stage is kept.
  int64_t replay_bytes = 0, replay_bytes_from_kept = 0;

  // The choices if the stage's boundary is kept, and if it is replayed.
  StageChoice if_kept, if_replayed;
};

struct StagedStep {
  std::vector<Stage> stages;         // the last one's boundary is empty
  std::vector<uint8_t> always_kept;  // by op: its results are taken far away, so that they would cross boundaries
  int64_t saved_bytes = 0;           // held whatever is chosen
};

class Staging {
 public:
  Staging(const StepGraph& graph, const StepUses& uses);

  // Results that are taken more than `span` relevant ops later are always kept, so that they cross no boundary.
  StagedStep cut(uint32_t span) const;
  // The whole step as one stage.
  StagedStep uncut() const;
  // Finds if_kept and if_replayed of each stage, at this price of a kept byte.
  void choose(StagedStep& step, double price) const;

  // Ops that may have to run again, in program order: those whose fate is kOpen or kRecomputed and that backward wants,
  // directly or for a replay.
  const std::vector<uint32_t>& relevant() const { return relevant_; }
  bool may_keep(uint32_t op) const;
  // Spans that are worth a try in cut(), the largest first.
  std::vector<uint32_t> spans() const;

 private:
  // The values that cross the place between two ops. Places are numbered by the position of the op before.
  struct Crossing {
    int64_t bytes = 0;
    int32_t not_to_keep = 0;  // ops whose results may not be kept
    uint32_t oldest = 0;      // position of the first op
  };

  void find_relevant();
  std::vector<Crossing> crossings(const std::vector<uint8_t>& always_kept) const;
  static absl::btree_set<uint32_t> boundaries(const std::vector<Crossing>& crossings);
  // The position of the op that makes the value and may have to run again, or ~0 if the value is there anyway.
  uint32_t maker(uint32_t value, const std::vector<uint8_t>& always_kept) const;
  // Fills in what follows from the ops and boundaries of the stages.
  void describe(StagedStep& step) const;
  void describe_boundary(Stage& stage) const;
  void describe_replay(Stage& stage, const std::vector<uint8_t>& always_kept) const;
  StageChoice choose(const Stage& stage, const std::vector<uint8_t>& always_kept, double price,
                     bool boundary_kept) const;

  const StepGraph& graph_;
  const StepUses& uses_;
  std::vector<uint32_t> relevant_;
  std::vector<uint32_t> position_;  // by op: its position in relevant_, or ~0
  std::vector<uint32_t> last_use_;  // by position: the position of the last op that takes a result of this one
};

}  // namespace ac2::internal
