#include "ac2/internal/planning/final_ops.h"

#include <algorithm>

namespace ac2::internal {

using Fate = StepGraph::Fate;

namespace {

// The value is held whatever hooks want and a plan says, as long as an op that may be replayed takes it.
bool is_saved(const StepGraph& graph, uint32_t value) {
  const uint32_t op = graph.values[value].op;
  return op == StepGraph::kOutside ? graph.values[value].ours : graph.ops[op].fate == Fate::kSaved;
}

// By value: whether a planned replay takes it.
std::vector<uint8_t> taken_by_replays(const StepGraph& graph, absl::Span<const uint8_t> wanted,
                                      absl::Span<const Keep> kept) {
  std::vector<uint8_t> taken(graph.values.size());
  for (size_t i = graph.ops.size(); i-- > 0;) {
    const StepGraph::Op& op = graph.ops[i];
    const bool is_replayed = op.fate != Fate::kSaved && kept[i] == Keep::kNothing &&
                             std::any_of(op.results.begin(), op.results.end(),
                                         [&](uint32_t result) { return wanted[result] != 0 || taken[result] != 0; });
    if (is_replayed) {
      for (const uint32_t input : op.inputs) {
        taken[input] = 1;
      }
    }
  }
  return taken;
}

// By value: whether it is still there when the first backward begins. Backward may never want it: the region looks for
// values that the program has let go of only now and then.
std::vector<uint8_t> there_at_backward(const StepGraph& graph) {
  std::vector<uint8_t> there(graph.values.size(), 1);
  for (const StepGraph::Event& event : graph.events) {
    if (event.kind == StepGraph::Event::kBackward) {
      break;
    }
    if (event.kind == StepGraph::Event::kDies) {
      there[event.index] = 0;
    }
  }
  return there;
}

}  // namespace

bool may_have_final_ops(const StepGraph& graph, absl::Span<const uint8_t> wanted) {
  return std::any_of(graph.ops.begin(), graph.ops.end(), [&](const StepGraph::Op& op) {
    return op.fate == Fate::kOpen && std::any_of(op.inputs.begin(), op.inputs.end(), [&](uint32_t input) {
             return wanted[input] == 0 && is_saved(graph, input);
           });
  });
}

std::vector<uint8_t> final_ops(const StepGraph& graph, absl::Span<const uint8_t> wanted, absl::Span<const Keep> kept) {
  const std::vector<uint8_t> taken = taken_by_replays(graph, wanted, kept);
  std::vector<uint8_t> are_final(graph.ops.size());
  const auto is_held_for_the_op = [&](uint32_t value) {
    const uint32_t op = graph.values[value].op;
    return wanted[value] == 0 && taken[value] == 0 &&
           (is_saved(graph, value) || (op != StepGraph::kOutside && are_final[op] != 0));
  };
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const StepGraph::Op& op = graph.ops[i];
    // The inputs of a replayed op are taken, so that it is not final. A result that is copied or narrowed is
    // not computed again anyway.
    are_final[i] = op.fate == Fate::kOpen && !is_in_a_form(kept[i]) &&
                   std::any_of(op.inputs.begin(), op.inputs.end(), is_held_for_the_op);
  }
  // A value that leads to no result which backward wants goes when the program lets it go, and all that was held for it
  // goes too. A value that leads to one, or to one that is still there when backward begins, lives as long as that
  // result, by whatever ops.
  std::vector<uint8_t> leads_on = there_at_backward(graph);
  for (size_t i = graph.ops.size(); i-- > 0;) {
    const StepGraph::Op& op = graph.ops[i];
    const bool is_needed = std::any_of(op.results.begin(), op.results.end(),
                                       [&](uint32_t result) { return wanted[result] != 0 || leads_on[result] != 0; });
    if (!is_needed) {
      are_final[i] = 0;
      continue;
    }
    for (const uint32_t input : op.inputs) {
      leads_on[input] = 1;
    }
  }
  return are_final;
}

}  // namespace ac2::internal
