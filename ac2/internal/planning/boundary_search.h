// Which boundaries between stages to keep, so that the step is cheapest within a number of bytes.
//
// A dynamic programme from the first stage to the last: the best way to have kept so many bytes up to a boundary that
// is kept. Between two kept boundaries everything is replayed at once, on top of what was kept before; so the bytes of
// a step are those of its kept boundaries, and those of the largest such stretch with what was kept before it. It is
// the recursion of Chen et al., "Training Deep Nets with Sublinear Memory Cost" (arXiv 1604.06174), with costs, sizes
// and budgets of any kind.
//
// Exact if each stage is a single op, as in a chain, as long as the bytes, counted in the greatest common divisor of
// all sizes, are few enough: 8192, or 2^21 / stages if that is less. With more, ways whose kept bytes differ by less
// than such a part are no longer told apart. For stages of several ops the bytes that their replay takes are an upper
// bound.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ac2/internal/planning/plan_stages.h"

namespace ac2::internal {

// Chains are always searched finely; for others the coarse one is enough for a try among many.
enum class Resolution : uint8_t { kCoarse, kFine };

// By op, to be completed (KeepSimulator::complete); null if there is no way. Stages must have been chosen
// (Staging::choose).
std::optional<std::vector<Keep>> search_boundaries(const StagedStep& step, int64_t bytes, Resolution resolution);

}  // namespace ac2::internal
