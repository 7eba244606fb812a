// StepUses says which values of a recorded step backward wants and replays may take, whichever results are kept: how
// many bytes they have, and from when to when they are wanted.
//
//   const StepUses uses(graph);
//   if (uses.wanted(value) && uses.last_released(value) < event) …   // no hook wants it any more
//
// Values, ops and events are numbered as in the graph. Making it takes O(events + edges), a question O(1).
//
// Threads: any; it does not change once it is made.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "ac2/internal/planning/step_graph.h"

namespace ac2::internal {

class StepUses {
 public:
  explicit StepUses(const StepGraph& graph);

  // Whether a hook wants the value when the first backward begins.
  bool wanted(uint32_t value) const { return wanted_[value] != 0; }
  absl::Span<const uint8_t> wanted() const { return wanted_; }
  // Whether an op that may have to be replayed takes the value.
  bool used_again(uint32_t value) const { return used_again_[value] != 0; }

  // Bytes of the op's results that backward or replays may want.
  int64_t kept_bytes(uint32_t op) const { return kept_bytes_[op]; }
  // Bytes of the op's results that backward wants.
  int64_t wanted_bytes(uint32_t op) const { return wanted_bytes_[op]; }
  int64_t result_bytes(uint32_t op) const { return result_bytes_[op]; }

  // The number of the event that first unpacks the value in backward, and of the event after which no hook wants it.
  uint32_t first_taken(uint32_t value) const { return first_taken_[value]; }
  uint32_t last_released(uint32_t value) const { return last_released_[value]; }
  // The values that no replay can take after the event.
  const std::vector<uint32_t>& ends_at(uint32_t event) const { return ends_[event]; }

 private:
  void note_hooks(const StepGraph& graph);
  void note_replays(const StepGraph& graph);

  std::vector<uint8_t> wanted_, used_again_;
  std::vector<int64_t> kept_bytes_, wanted_bytes_, result_bytes_;
  std::vector<uint32_t> first_taken_, last_released_;
  std::vector<std::vector<uint32_t>> ends_;
};

}  // namespace ac2::internal
