// The cost of the best plan for a small step, found by trying all ways, for tests of the planners.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "ac2/internal/planning/keep.h"
#include "ac2/internal/planning/keep_simulator.h"
#include "ac2/internal/planning/step_graph.h"

namespace ac2::internal {

// The least that the step takes within the bytes, if the results of each op are replayed, kept, or treated in the third
// way. `simulator` is that of the graph.
inline double least_cost(const StepGraph& graph, KeepSimulator& simulator, Keep third, int64_t bytes) {
  std::vector<uint32_t> open;
  size_t ways = 1;
  for (uint32_t op = 0; op < graph.ops.size(); ++op) {
    if (graph.ops[op].fate == StepGraph::Fate::kOpen) {
      open.push_back(op);
      ways *= 3;
    }
  }
  double least = std::numeric_limits<double>::infinity();
  for (size_t way = 0; way < ways; ++way) {
    std::vector<Keep> kept(graph.ops.size(), Keep::kNothing);
    size_t rest = way;
    for (const uint32_t op : open) {
      kept[op] = rest % 3 == 0 ? Keep::kNothing : rest % 3 == 1 ? Keep::kWanted : third;
      rest /= 3;
    }
    simulator.complete(kept);
    const KeepOutcome outcome = simulator.run(kept);
    if (outcome.peak_bytes <= bytes) least = std::min(least, outcome.extra_cost());
  }
  return least;
}

}  // namespace ac2::internal
