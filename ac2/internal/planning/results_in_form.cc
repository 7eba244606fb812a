#include "ac2/internal/planning/results_in_form.h"

#include <utility>

namespace ac2::internal {

StepGraph with_results_in_form(StepGraph graph, const std::vector<uint32_t>& ops,
                               const std::function<std::optional<int64_t>(const StepGraph::Value&)>& form_bytes) {
  for (const uint32_t op : ops) {
    graph.ops[op].fate = StepGraph::Fate::kSaved;
    for (const uint32_t result : graph.ops[op].results) {
      StepGraph::Value& value = graph.values[result];
      if (const std::optional<int64_t> bytes = form_bytes(value)) {
        value.unpacked_bytes = std::exchange(value.bytes, *bytes);
      }
    }
  }
  return graph;
}

}  // namespace ac2::internal
