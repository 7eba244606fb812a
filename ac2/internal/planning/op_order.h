// Orders of ops, of which a search takes more and more of the first ones.
//
//   for (const double share : kShares) {
//     …first_share(bytes, dearest_first(graph, bytes, ops), share)…
//   }
//
// `bytes` are those of each op of the step that the search is about, such as those that a copy moves.
//
// Threads: any.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ac2/internal/planning/step_graph.h"

namespace ac2::internal {

// The shares of the bytes that searches try.
inline constexpr std::array<double, 5> kShares = {0.125, 0.25, 0.5, 0.75, 1};

// Those first that cost most for their bytes.
std::vector<uint32_t> dearest_first(const StepGraph& graph, const std::vector<int64_t>& bytes,
                                    std::vector<uint32_t> ops);

// The first ops of the order that have this share of its bytes, in the order of the program.
std::vector<uint32_t> first_share(const std::vector<int64_t>& bytes, const std::vector<uint32_t>& order, double share);

}  // namespace ac2::internal
