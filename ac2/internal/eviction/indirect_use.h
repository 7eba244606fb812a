// The next use of a value that no hook wants, but from which dropped values must be computed again.
//
//   const double next = first_indirect_use(evictor, value, [&](ValueId result) { return when_used(result); });
#pragma once

#include <algorithm>
#include <limits>

#include "ac2/internal/eviction/evictor.h"
#include "ac2/internal/eviction/evictor_graph.h"
#include "ac2/internal/eviction/evictor_ids.h"

namespace ac2::internal {

// The first of the times that `time_of` gives for the values that are computed from `value`, needed and nowhere.
// Infinity if there is no such value.
template <class TimeOf>
double first_indirect_use(const Evictor& evictor, ValueId value, TimeOf&& time_of) {
  const EvictorGraph& graph = evictor.graph();
  double first = std::numeric_limits<double>::infinity();
  for (const EvictorGraph::Use& use : graph.value(value).uses) {
    if (graph.node(use.node).missing > 0) {
      for (const ValueId result : graph.node(use.node).results) {
        if (evictor.place(result) == Place::kNowhere && graph.is_needed(result)) {
          first = std::min(first, time_of(result));
        }
      }
    }
  }
  return first;
}

}  // namespace ac2::internal
