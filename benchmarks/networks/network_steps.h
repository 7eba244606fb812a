// Steps of networks as the planner sees them: ops, bytes, costs and what backward wants, without any tensor.
//
//   NetworkStep step = transformer_step(24);
//   Planner planner(step.graph);
//
// Costs and bytes are in units of their own: only their ratios say something. Backward goes through the ops in reverse.
#pragma once

#include <cstdint>
#include <vector>

#include "ac2/internal/planning/step_graph.h"

namespace ac2::internal {

// A step that is built op by op.
class NetworkStep {
 public:
  // Which values an op saves for backward.
  enum Saves : uint8_t { kNothing = 0, kInput = 1, kResult = 2, kBoth = 3 };

  // The op's results are one value, whose number this is.
  uint32_t run(double cost, int64_t bytes, const std::vector<uint32_t>& inputs, Saves saves,
               StepGraph::Fate fate = StepGraph::Fate::kOpen);
  // Parameters and inputs are no values here: they are always there. Of the results the program now lets go.
  const StepGraph& backward();

  // Of all ops, each once.
  double cost() const;

  StepGraph graph;

 private:
  void want(uint32_t value, std::vector<uint32_t>& hooks);

  std::vector<std::vector<uint32_t>> hooks_of_;
};

// n ops of cost 1 that save their inputs, as sin() does; each result takes one byte. The last is wanted by nothing.
NetworkStep sines_step(int n);

// Layers of a transformer of nine ops, in units of a hidden state's bytes (100) and of one of its products (1000).
NetworkStep transformer_step(int layers);

// A convolutional network of the shape of a U: results of the way down are taken on the way up. Ten ops a level and
// more; sizes double from level to level, so that a depth above 50 is too much.
NetworkStep u_shaped_step(int depth);

// Seven ops a step of time. Two values go from each to the next.
NetworkStep lstm_step(int steps);

}  // namespace ac2::internal
