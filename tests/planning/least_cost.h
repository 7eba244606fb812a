// The cost of the best plan for a small step, found by trying all ways, for tests of the planners.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "ac2/internal/planning/keep.h"
#include "ac2/internal/planning/keep_simulator.h"
#include "ac2/internal/planning/step_graph.h"

namespace ac2::internal {

// The least that the step takes within the bytes, if the results of each op are treated in one of these ways.
// `simulator` is that of the graph.
inline double least_cost(const StepGraph& graph, KeepSimulator& simulator, const std::vector<Keep>& ways,
                         int64_t bytes) {
  std::vector<uint32_t> open;
  size_t combinations = 1;
  for (uint32_t op = 0; op < graph.ops.size(); ++op) {
    if (graph.ops[op].fate == StepGraph::Fate::kOpen) {
      open.push_back(op);
      combinations *= ways.size();
    }
  }
  double least = std::numeric_limits<double>::infinity();
  for (size_t combination = 0; combination < combinations; ++combination) {
    std::vector<Keep> kept(graph.ops.size(), Keep::kNothing);
    size_t rest = combination;
    for (const uint32_t op : open) {
      kept[op] = ways[rest % ways.size()];
      rest /= ways.size();
    }
    simulator.complete(kept);
    const KeepOutcome outcome = simulator.run(kept);
    if (outcome.total_bytes <= bytes) least = std::min(least, outcome.extra_cost());
  }
  return least;
}

}  // namespace ac2::internal
