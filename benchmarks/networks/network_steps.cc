#include "benchmarks/networks/network_steps.h"

#include <cstddef>

namespace ac2::internal {

using Event = StepGraph::Event;
using Fate = StepGraph::Fate;

uint32_t NetworkStep::run(double cost, int64_t bytes, const std::vector<uint32_t>& inputs, Saves saves, Fate fate) {
  const auto op = static_cast<uint32_t>(graph.ops.size());
  auto& hooks = hooks_of_.emplace_back();
  if ((saves & kInput) != 0) {
    for (const uint32_t input : inputs) {
      want(input, hooks);
    }
  }
  graph.ops.push_back({.cost = cost, .fate = fate, .inputs = inputs, .results = {}, .takes = {}});
  graph.events.push_back({Event::kRuns, op});
  const auto value = static_cast<uint32_t>(graph.values.size());
  graph.values.push_back({.bytes = bytes, .op = op});
  graph.ops.back().results = {value};
  if ((saves & kResult) != 0) {
    want(value, hooks);
  }
  return value;
}

const StepGraph& NetworkStep::backward() {
  graph.events.push_back({Event::kBackward, 0});
  for (uint32_t value = 0; value < graph.values.size(); ++value) {
    graph.events.push_back({Event::kDies, value});
  }
  for (size_t op = hooks_of_.size(); op-- > 0;) {
    for (const uint32_t hook : hooks_of_[op]) {
      graph.events.push_back({Event::kTaken, hook});
    }
    for (const uint32_t hook : hooks_of_[op]) {
      graph.events.push_back({Event::kReleased, hook});
    }
  }
  return graph;
}

double NetworkStep::cost() const {
  double cost = 0;
  for (const StepGraph::Op& op : graph.ops) {
    cost += op.cost;
  }
  return cost;
}

void NetworkStep::want(uint32_t value, std::vector<uint32_t>& hooks) {
  hooks.push_back(static_cast<uint32_t>(graph.hooks.size()));
  graph.events.push_back({Event::kWanted, hooks.back()});
  graph.hooks.push_back(value);
}

NetworkStep sines_step(int n) {
  NetworkStep step;
  std::vector<uint32_t> last;
  for (int i = 0; i < n; ++i) last = {step.run(1, 1, last, NetworkStep::kInput)};
  step.backward();
  return step;
}

NetworkStep transformer_step(int layers) {
  NetworkStep step;
  uint32_t x = step.run(1, 100, {}, NetworkStep::kNothing);
  for (int i = 0; i < layers; ++i) {
    const uint32_t norm1 = step.run(4, 100, {x}, NetworkStep::kInput);
    const uint32_t qkv = step.run(3000, 300, {norm1}, NetworkStep::kInput);
    const uint32_t mixed = step.run(340, 100, {qkv}, NetworkStep::kBoth);
    const uint32_t y = step.run(3, 100, {x, step.run(1000, 100, {mixed}, NetworkStep::kInput)}, NetworkStep::kNothing);
    const uint32_t norm2 = step.run(4, 100, {y}, NetworkStep::kInput);
    const uint32_t hidden = step.run(4000, 400, {norm2}, NetworkStep::kInput);
    const uint32_t gelu = step.run(16, 400, {hidden}, NetworkStep::kInput);
    x = step.run(3, 100, {y, step.run(4000, 100, {gelu}, NetworkStep::kInput)}, NetworkStep::kNothing);
  }
  step.backward();
  return step;
}

NetworkStep u_shaped_step(int depth) {
  NetworkStep step;
  std::vector<uint32_t> across;
  uint32_t x = step.run(1, 1 << depth, {}, NetworkStep::kNothing);
  for (int i = depth; i > 0; --i) {
    for (int j = 0; j < 2; ++j)
      x = step.run(10, 1 << i, {step.run(300, 1 << i, {x}, NetworkStep::kInput)}, NetworkStep::kResult);
    across.push_back(x);
    x = step.run(5, 1 << (i - 1), {x}, NetworkStep::kInput);
  }
  for (int i = 1; i <= depth; ++i) {
    x = step.run(8, 2 << i, {step.run(100, 1 << i, {x}, NetworkStep::kInput), across[depth - i]},
                 NetworkStep::kNothing);
    for (int j = 0; j < 2; ++j)
      x = step.run(10, 1 << i, {step.run(300, 1 << i, {x}, NetworkStep::kInput)}, NetworkStep::kResult);
  }
  step.backward();
  return step;
}

NetworkStep lstm_step(int steps) {
  NetworkStep step;
  uint32_t h = step.run(1, 10, {}, NetworkStep::kNothing), c = step.run(1, 10, {}, NetworkStep::kNothing);
  for (int i = 0; i < steps; ++i) {
    const uint32_t gates = step.run(400, 40, {h}, NetworkStep::kInput);
    const uint32_t opened = step.run(20, 40, {gates}, NetworkStep::kResult);
    const uint32_t kept = step.run(5, 10, {opened, c}, NetworkStep::kInput),
                   added = step.run(5, 10, {opened}, NetworkStep::kInput);
    c = step.run(5, 10, {kept, added}, NetworkStep::kNothing);
    h = step.run(5, 10, {opened, step.run(8, 10, {c}, NetworkStep::kResult)}, NetworkStep::kInput);
  }
  step.backward();
  return step;
}

}  // namespace ac2::internal
