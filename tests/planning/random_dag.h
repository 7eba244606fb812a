// Steps drawn at random for tests of the planners: each op reads one or two of the last results.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "ac2/internal/planning/step_graph.h"
#include "benchmarks/networks/network_steps.h"

namespace ac2::internal {

// A result takes 1 to 9 units of so many bytes.
inline NetworkStep random_dag(std::mt19937& dice, int ops, int64_t unit = 1) {
  using Fate = StepGraph::Fate;
  NetworkStep step;
  for (int i = 0; i < ops; ++i) {
    std::vector<uint32_t> inputs;
    const uint32_t count = i == 0 ? 0 : 1 + dice() % 2;
    for (uint32_t j = 0; j < count; ++j) {
      const auto back = static_cast<uint32_t>(1 + std::min<uint32_t>(dice() % 4, dice() % 4));
      const uint32_t input = static_cast<uint32_t>(i) - std::min<uint32_t>(back, i);
      if (std::find(inputs.begin(), inputs.end(), input) == inputs.end()) inputs.push_back(input);
    }
    const double cost = static_cast<double>(1 + dice() % 20);
    const Fate fate = dice() % 12 == 0 ? Fate::kSaved : dice() % 12 == 0 ? Fate::kRecomputed : Fate::kOpen;
    const auto saves = static_cast<NetworkStep::Saves>(1 + dice() % 3);
    const auto bytes = unit * static_cast<int64_t>(1 + dice() % 9);
    step.run(cost, bytes, inputs, saves, fate);
  }
  step.backward();
  return step;
}

}  // namespace ac2::internal
