// The ops of a plan whose results are saved for good, because something would be held for a replay that never comes.
//
//   const std::vector<uint8_t> final = final_ops(graph, wanted, kept);
//   if (!final.empty() && final[op]) …   // the op is decided MUST_SAVE
//
// A region holds what an op takes for as long as the op may be replayed. Results that a plan keeps could be dropped
// should the program leave the plan, and so may be replayed. For most ops this costs nothing, because the region holds
// what they take anyway or can compute it again. But a result that is saved whatever the plan says, as that of a
// collective, or a tensor from outside that the program has let go of, may be held for this alone. An op that takes one
// of those is final if the plan never replays it and it leads to a result that backward wants, or that is still there
// when backward begins, such as the output of a pipeline's stage. So are the ops in between.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "ac2/internal/planning/keep.h"
#include "ac2/internal/planning/step_graph.h"

namespace ac2::internal {

// False: no plan for the step has final ops. `wanted`: by value, whether a hook wants it when backward begins.
bool may_have_final_ops(const StepGraph& graph, absl::Span<const uint8_t> wanted);

// By op of the graph. `kept` is as KeepSimulator::complete() makes it. O(ops and their inputs).
std::vector<uint8_t> final_ops(const StepGraph& graph, absl::Span<const uint8_t> wanted, absl::Span<const Keep> kept);

}  // namespace ac2::internal
