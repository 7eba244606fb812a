// The bytes and replays of a recorded step if some results are kept and the others are computed again.
//
//   KeepSimulator simulator(graph);
//   std::vector<Keep> kept(graph.ops.size());   // read for ops whose fate is open
//   simulator.complete(kept);
//   const KeepOutcome outcome = simulator.run(kept);
//
// The simulator goes through the events of the step and mirrors what a tape does with its values, under a budget that
// never evicts:
//
// - All hooks are pinned when a backward begins. The first pin on a value without bytes pins the inputs of its op, and
//   the last unpin undoes that.
// - A replay goes depth first, from the values that are there. A replayed value lives while it is pinned.
// - A kept value is held while a hook wants it, and while it is pinned after that.
// - A value that is saved, or from outside and the region's alone, is held while an op that may be replayed takes it.
//   Ops that the plan never replays need none of it, so that such values are held for the planned replays only: see
//   final_ops.h.
// - A value that is held in a form, be it by a policy or by the plan, is unpacked when it is wanted, and its bytes
// stand
//   beside that form until the last pin goes.
// - A value whose form lies behind the queues of copies leaves when it is first held, and comes back when it is wanted.
//   Beside what is unpacked count the bytes that are on their way, as far as the window of CopySpeedAndWindow lets them
//   be: in forward the values that leave, in backward also those that come back ahead of their use.
//
// (That replayed results may take the place of saved inputs is not among the rules: the tape does so only without a
// budget, and a plan brings one.) The rules stand here a second time because a plan is evaluated thousands of times,
// without tensors. Two tests keep both the same: random_plan_test runs random programs under plans, and fails if one
// replays more than its plan says; plan_test compares bytes and replays, and runs steps with exactly the bytes of their
// plans. A change of how the tape pins, holds or replays values is made here too.
//
// Where the simulator differs from the tape, the simulator counts too much rather than too little: an op is taken to be
// wanted while the program has its result, though the result itself could be used then, and all results of an op count
// before the op is replayed, wanted or not.
//
// A run takes O(events + edges). Threads: not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/types/span.h"
#include "ac2/internal/planning/copy_schedule.h"
#include "ac2/internal/planning/keep.h"
#include "ac2/internal/planning/keep_watch.h"
#include "ac2/internal/planning/step_graph.h"
#include "ac2/internal/planning/step_uses.h"

namespace ac2::internal {

struct KeepOutcome {
  int64_t forward_bytes = 0;  // held when the first backward begins
  int64_t peak_bytes = 0;     // the most held at any time
  // Held by a step until its backward begins: forward_bytes, and of a plan that copies what may be on its way then.
  int64_t waiting_bytes = 0;
  // The most that all steps in flight hold (StepGraph::in_flight): one is at its peak, and the others wait.
  int64_t total_bytes = 0;
  double replay_cost = 0;
  int64_t replays = 0;
  // By the form of the step.
  struct FormUse {
    int64_t values = 0;  // that are held in it
    int64_t bytes = 0;   // of these values before they are packed
    double cost = 0;     // of packing and of unpacking for each use; of copies the time for which the step waits
  };
  std::vector<FormUse> uses;

  bool uses_a_form() const {
    return std::any_of(uses.begin(), uses.end(), [](const FormUse& use) { return use.values > 0; });
  }
  double form_cost() const {
    return std::accumulate(uses.begin(), uses.end(), 0.0,
                           [](double sum, const FormUse& use) { return sum + use.cost; });
  }
  // By which the step is longer than one that keeps everything.
  double extra_cost() const { return replay_cost + form_cost(); }
};

class KeepSimulator {
 public:
  explicit KeepSimulator(const StepGraph& graph);

  // For plans with a form whose queue is kCopies. Until then no plan may use one.
  void set_copies(const CopySpeedAndWindow& copies) { copies_ = copies; }

  KeepOutcome run(absl::Span<const Keep> kept);
  // The same, watched. Without final ops the run is that of a region in which no op's results are saved for good.
  KeepOutcome watch(absl::Span<const Keep> kept, KeepWatch& watch, bool with_final_ops = true);

  // Turns kWanted into kAll for ops whose results a replay takes, and all into kNothing for ops whose results neither a
  // hook nor a replay wants.
  void complete(std::vector<Keep>& kept) const;

  // The final ops of the plan (final_ops.h), once `kept` is complete.
  std::vector<uint8_t> final_ops(absl::Span<const Keep> kept) const;

  // The uses of the step's values, whatever is kept.
  const StepUses& uses() const { return uses_; }

 private:
  struct ValueState {
    int32_t hooks = 0;
    int32_t pins = 0;
    bool held = false;      // since forward, in the form in which it is kept
    bool there = false;     // its bytes are there because a replay made them, or is about to read them
    bool waits = false;     // the value is pinned, and its op has still to be replayed
    bool unpacked = false;  // its bytes are there beside the form that is held
  };

  // The form in which the value is held in this run; null if the plan holds it in none.
  const StepGraph::FormOfValue* form(uint32_t value) const;
  bool is_behind_copies(const StepGraph::FormOfValue& form) const {
    return graph_.forms[form.form] == StepGraph::Queue::kCopies;
  }
  // The bytes that unpacking the value makes. 0: nothing is unpacked.
  int64_t unpacked_bytes(uint32_t value) const;
  // The bytes of values that leave or come back which may be on the device beside those that are held.
  int64_t on_their_way() const;
  void note_peak(int64_t more = 0);
  void note_coming(uint32_t value, bool is_form);
  void note_going(uint32_t value, bool is_form);
  void start_schedule();
  // Forward has come to its end.
  void note_waiting();
  // Forward has come to the op.
  void forward_op(uint32_t op);
  // Backward has come to the hook by itself.
  void pass_until(uint32_t hook);

  // The value is held whatever hooks want.
  bool saved(uint32_t value) const;
  // The value is held at least while a hook wants it.
  bool keeps(uint32_t value) const;
  // The value can be had without a replay.
  bool at_hand(uint32_t value) const;
  // The value is at hand, but not yet in the form in which an op or a hook takes it.
  bool must_unpack(uint32_t value) const;
  void unpack(uint32_t value);
  void hold(uint32_t value);
  void drop(uint32_t value);
  void pin(uint32_t value);
  void unpin(uint32_t value);
  void unpin_hook(uint32_t hook);
  void begin_backward();
  void take(uint32_t hook);
  void release(uint32_t hook);
  // Replays whatever is missing for the value.
  void bring_back(uint32_t value);
  void replay(uint32_t op);

  const StepGraph& graph_;
  StepUses uses_;
  bool may_have_final_ops_ = false;

  // The state of one run.
  absl::Span<const Keep> kept_;
  std::vector<uint8_t> final_;  // by op, or empty
  std::vector<ValueState> states_;
  std::vector<int32_t> needed_;          // by op: results that wait for its replay
  std::vector<uint8_t> alive_, pinned_;  // by hook
  std::vector<uint32_t> work_, missing_;
  int64_t held_ = 0;
  KeepOutcome outcome_;
  KeepWatch* watch_ = nullptr;

  // Of a run with a form whose queue is kCopies.
  CopySpeedAndWindow copies_;
  CopySchedule schedule_;
  bool copies_any_ = false;
  bool in_backward_ = false;
  int64_t away_ = 0;               // bytes of values behind the queues that something still needs
  double forward_cost_ = 0;        // of the ops that have run so far
  double backward_passed_ = 0;     // of the time of backward by itself
  std::vector<double> wanted_at_;  // by hook: when forward came to it
};

}  // namespace ac2::internal
