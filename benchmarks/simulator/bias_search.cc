#include "benchmarks/simulator/bias_search.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace ac2::internal {

namespace {

// At most this many simulations, and this many ops in all of them: half a minute on the traces at hand. A choice of the
// evictor takes as long as simulating some ten ops.
constexpr int kAttempts = 4'000;
constexpr int64_t kWork = 60'000'000;
constexpr int64_t kWorkOfEviction = 10;

// The most ops in a stretch.
constexpr uint32_t kStretch = 40;
// The factors of a stretch change by at most e^kLargestChange.
constexpr double kLargestChange = 2;

class BiasSearch {
 public:
  BiasSearch(const RecordedStep& step, RuleChoice best) : step_(step), best_(std::move(best)) {
    best_.options.bias.resize(step.values.size(), 1.0);
  }

  RuleChoice run() {
    int64_t work = kWork;
    for (int i = 0; i < kAttempts && work > 0 && !best_.result.replayed.empty(); ++i) {
      work -= change_something();
    }
    return std::move(best_);
  }

 private:
  // Returns the work that it took.
  int64_t change_something() {
    SimulatorOptions options = best_.options;
    const std::vector<uint32_t>& replayed = best_.result.replayed;
    const uint32_t last = *std::max_element(replayed.begin(), replayed.end());
    change(options.bias, replayed[below(static_cast<uint32_t>(replayed.size()))], std::exp(kLargestChange * share()));
    change(options.bias, below(last + 1), std::exp(-kLargestChange * share()));
    const StepResult result = attempt(step_, std::move(options), best_);
    return static_cast<int64_t>(step_.ops.size() + result.replayed.size()) + kWorkOfEviction * result.evictions;
  }

  // Multiplies the factors of what the ops around `middle` make.
  void change(std::vector<double>& bias, uint32_t middle, double factor) {
    const uint32_t half = below(kStretch) / 2;
    const uint32_t end = std::min(middle + half + 1, static_cast<uint32_t>(step_.ops.size()));
    for (uint32_t op = middle - std::min(middle, half); op < end; ++op) {
      for (const uint32_t tensor : step_.ops[op].results) {
        if (step_.tensors[tensor].viewed == kNoId) {
          bias[step_.tensors[tensor].value] *= factor;
        }
      }
    }
  }

  // Without the distributions of the standard library, which differ between implementations. Its generators do not.
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>((uint64_t{generator_()} * limit) >> 32); }
  double share() { return generator_() * 0x1p-32; }

  const RecordedStep& step_;
  RuleChoice best_;
  std::mt19937 generator_;
};

}  // namespace

StepResult attempt(const RecordedStep& step, SimulatorOptions options, RuleChoice& best) {
  const double give_up_at = options.give_up_at;
  const bool completed = best.result.outcome == StepResult::kCompleted;
  if (completed) {
    options.give_up_at = best.result.cost / step.cost();
  }
  StepResult result = simulate(step, options);
  if (result.outcome == StepResult::kCompleted && (!completed || result.cost < best.result.cost)) {
    options.give_up_at = give_up_at;
    best = {std::move(options), result};
  }
  return result;
}

RuleChoice search_biases(const RecordedStep& step, RuleChoice choice) {
  if (choice.result.outcome != StepResult::kCompleted) {
    return choice;
  }
  return BiasSearch(step, std::move(choice)).run();
}

}  // namespace ac2::internal
