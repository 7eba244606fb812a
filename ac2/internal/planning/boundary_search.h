// Chooses which boundaries between stages to keep, so that the step is cheapest within a number of bytes.
//
//   staging.choose(step, price);
//   if (std::optional<std::vector<Keep>> kept = search_boundaries(step, {bytes}, Resolution::kCoarse)) {
//     simulator.complete(*kept);
//   }
//
// The search is a dynamic programme from the first stage to the last. Its states are, for each boundary that is kept,
// the cheapest way to have kept so many bytes up to there. Everything between two kept boundaries is replayed in one
// piece, on top of what was kept before. So a plan's bytes are those of its kept boundaries, or, where that is more,
// those of a replayed stretch together with what was kept before it. This is the recursion of Chen et al., "Training
// Deep Nets with Sublinear Memory Cost" (arXiv 1604.06174), with costs, sizes and budgets of any kind.
//
// StepRoom may limit the bytes that are kept when backward begins below those at any time. Each of several steps in
// flight holds the kept ones, and only one step at a time is at its peak.
//
// Exact if each stage is a single op, as in a chain, and if the bytes, counted in the greatest common divisor of all
// sizes, are no more than the states of one boundary: kMostStatesPerBoundary, or kFineStates / stages if that is less.
// If they are more, partial plans whose kept bytes differ by less than one such part are not told apart. For stages of
// several ops the bytes that a replay takes are an upper bound.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "ac2/internal/planning/keep.h"
#include "ac2/internal/planning/plan_stages.h"

namespace ac2::internal {

// Numbers of bytes that are told apart: at all boundaries together, and at one.
inline constexpr int64_t kFineStates = int64_t{1} << 21;
inline constexpr int64_t kCoarseStates = int64_t{1} << 17;
inline constexpr int64_t kMostStatesPerBoundary = 8192;

// Chains are always searched finely. For other graphs kCoarse is enough for one try among many.
enum class Resolution : uint8_t { kCoarse, kFine };

// The bytes that a plan may hold of one step.
struct StepRoom {
  int64_t peak_bytes = 0;                                        // at any time
  int64_t kept_bytes = std::numeric_limits<int64_t>::max() / 2;  // when backward begins
};

// Chooses what to keep of each op, to be completed by KeepSimulator::complete(), or null if nothing fits. The choices
// within stages must have been made (Staging::choose).
std::optional<std::vector<Keep>> search_boundaries(const StagedStep& step, const StepRoom& room, Resolution resolution);

}  // namespace ac2::internal
