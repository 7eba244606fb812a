#include "ac2/internal/bias_search.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace ac2::internal {

namespace {

// Simulations, and ops in all of them: half a minute at most on the traces at hand. A choice of the evictor takes as long as some ten
// ops on paper.
constexpr int kAttempts = 4'000;
constexpr int64_t kWork = 60'000'000;
constexpr int64_t kWorkOfEviction = 10;

// Ops in a stretch, at most.
constexpr uint32_t kStretch = 40;
// A stretch's biases change by up to e to this.
constexpr double kLargestChange = 2;

class BiasSearch {
 public:
  BiasSearch(const RecordedStep& step, RuleChoice best)
      : step_(step), step_cost_(step.cost()), best_(std::move(best)), made_(step.ops.size()) {
    best_.options.bias.resize(step.values.size(), 1.0);
    for (size_t i = 0; i < step.ops.size(); ++i) {
      for (const uint32_t tensor : step.ops[i].results) {
        if (step.tensors[tensor].viewed == kNoId) {
          made_[i].push_back(step.tensors[tensor].value);
        }
      }
    }
  }

  RuleChoice run() {
    int64_t work = kWork;
    for (int i = 0; i < kAttempts && work > 0 && !best_.result.replayed.empty(); ++i) {
      work -= attempt();
    }
    return std::move(best_);
  }

 private:
  // Returns the work that it took.
  int64_t attempt() {
    SimulatorOptions options = best_.options;
    const std::vector<uint32_t>& replayed = best_.result.replayed;
    const uint32_t last = *std::max_element(replayed.begin(), replayed.end());
    change(options.bias, replayed[below(static_cast<uint32_t>(replayed.size()))], std::exp(kLargestChange * share()));
    change(options.bias, below(last + 1), std::exp(-kLargestChange * share()));
    // What is dearer than the best so far need not be finished.
    const double give_up_at = std::exchange(options.give_up_at, best_.result.cost / step_cost_);
    StepResult result = simulate(step_, options);
    const int64_t work =
        static_cast<int64_t>(step_.ops.size() + result.replayed.size()) + kWorkOfEviction * result.evictions;
    if (result.outcome == StepResult::kCompleted && result.cost < best_.result.cost) {
      options.give_up_at = give_up_at;
      best_ = {std::move(options), std::move(result)};
    }
    return work;
  }

  // Of what the ops around `middle` make.
  void change(std::vector<double>& bias, uint32_t middle, double factor) {
    const uint32_t half = below(kStretch) / 2;
    const uint32_t end = std::min(middle + half + 1, static_cast<uint32_t>(step_.ops.size()));
    for (uint32_t op = middle - std::min(middle, half); op < end; ++op) {
      for (const uint32_t value : made_[op]) {
        bias[value] *= factor;
      }
    }
  }

  // The standard's distributions differ from library to library, its generators do not.
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>((uint64_t{generator_()} * limit) >> 32); }
  double share() { return generator_() * 0x1p-32; }

  const RecordedStep& step_;
  const double step_cost_;
  RuleChoice best_;
  std::vector<std::vector<uint32_t>> made_;  // by each op: values
  std::mt19937 generator_;
};

}  // namespace

RuleChoice search_biases(const RecordedStep& step, RuleChoice choice) {
  if (choice.result.outcome != StepResult::kCompleted) {
    return choice;
  }
  return BiasSearch(step, std::move(choice)).run();
}

}  // namespace ac2::internal
