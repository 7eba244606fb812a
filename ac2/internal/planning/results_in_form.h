// The step that is left to plan once it is settled which results are held in another form: packed, or on the host.
//
//   StepGraph rest = with_results_in_form(graph, ops, [](const StepGraph::Value& value) {
//     return value.narrows ? std::optional(value.narrow_bytes) : std::nullopt;
//   });
//
// Threads: any.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "ac2/internal/planning/step_graph.h"

namespace ac2::internal {

// The graph with the results of the ops saved. `form_bytes` says how many bytes the form of such a result has on the
// device; null if the result is held as it is.
StepGraph with_results_in_form(StepGraph graph, const std::vector<uint32_t>& ops,
                               const std::function<std::optional<int64_t>(const StepGraph::Value&)>& form_bytes);

}  // namespace ac2::internal
