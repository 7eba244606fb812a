// What keeping some results and computing the others again comes to: bytes and replays, found by going through a
// recorded step as the runtime would.
//
//   KeepSimulator simulator(graph);
//   std::vector<Keep> kept(graph.ops.size());   // of meaning for ops with an open fate
//   simulator.complete(kept);
//   KeepOutcome outcome = simulator.run(kept);
//
// It follows the tape's rules (needs.cc, kept_values.cc, replayer.cc) where no budget interferes: all hooks are pinned
// when a backward begins, replay goes depth first from what is there, and a replayed value lives while it is pinned.
// While the program has a result, what it was made from may be wanted for it; but that the result is there is not made
// use of, so the runtime may hold and replay less. Before an op is replayed all of its results count, wanted or not.
//
// O(events + edges) a run. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "ac2/internal/planning/step_graph.h"

namespace ac2::internal {

enum class Keep : uint8_t {
  kNothing,  // all of an op's results are computed again
  kWanted,   // those that hooks want are kept, while they do
  kAll,      // and those that only replays take, while ops that take them may have to be replayed
};

struct KeepOutcome {
  int64_t forward_bytes = 0;  // held when the first backward begins
  int64_t peak_bytes = 0;     // most held at any time
  double replay_cost = 0;
  int64_t replays = 0;
};

class KeepSimulator {
 public:
  explicit KeepSimulator(const StepGraph& graph);

  KeepOutcome run(absl::Span<const Keep> kept);

  // Keeps for replays what they take, of the ops that are kept, and nothing that neither they nor hooks want.
  void complete(std::vector<Keep>& kept) const;

  // A hook wants it when the backward begins.
  bool wanted(uint32_t value) const { return wanted_[value] != 0; }
  // Bytes of its results that backward or replays may want.
  int64_t kept_bytes(uint32_t op) const { return kept_bytes_[op]; }
  // Bytes of its results that backward wants.
  int64_t wanted_bytes(uint32_t op) const { return wanted_bytes_[op]; }
  int64_t result_bytes(uint32_t op) const { return result_bytes_[op]; }
  // In backward, the number of the event that first takes the value out, and of that which last lets go of it.
  uint32_t first_taken(uint32_t value) const { return first_taken_[value]; }
  uint32_t last_released(uint32_t value) const { return last_released_[value]; }

 private:
  struct State {
    int32_t hooks = 0;
    int32_t pins = 0;
    bool held = false;
    bool real = false;
    bool waits = false;
    bool unpacked = false;  // and there beside what is held
  };

  void note_hooks();
  void note_uses();
  bool saved(uint32_t value) const;
  bool keeps(uint32_t value) const;
  bool at_hand(uint32_t value) const;
  bool must_unpack(uint32_t value) const;
  void unpack(uint32_t value);
  void hold(uint32_t value);
  void drop(uint32_t value);
  void pin(uint32_t value);
  void unpin(uint32_t value);
  void unpin_hook(uint32_t hook);
  void begin_backward();
  void realize(uint32_t value);
  void replay(uint32_t op);

  const StepGraph& graph_;
  std::vector<uint8_t> wanted_, used_again_;
  std::vector<int64_t> kept_bytes_, wanted_bytes_, result_bytes_;
  std::vector<uint32_t> first_taken_, last_released_;
  std::vector<std::vector<uint32_t>> ends_;  // by event: values that are no longer used after it

  // Of one run.
  absl::Span<const Keep> kept_;
  std::vector<State> states_;
  std::vector<int32_t> needed_;
  std::vector<uint8_t> alive_, pinned_;  // hooks
  std::vector<uint32_t> work_, missing_;
  int64_t held_ = 0;
  KeepOutcome outcome_;
};

}  // namespace ac2::internal
