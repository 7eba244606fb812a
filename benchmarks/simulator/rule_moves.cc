#include "benchmarks/simulator/rule_moves.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "benchmarks/simulator/value_kinds.h"

namespace ac2::internal {

namespace {

constexpr size_t kKinds = 24;

}  // namespace

RuleMoves::RuleMoves(const RecordedStep& step) : step_(step), kinds_(largest_kinds(step, kKinds)) {}

SimulatorOptions RuleMoves::change_constants(const RuleChoice& best) {
  constexpr std::array<double, 4> kLargest{1.5, 0.5, 0.5, 0.15};
  SimulatorOptions options = best.options;
  const double largest = kLargest[below(kLargest.size())];
  // Small changes come more often than large ones.
  const auto factor = [&](double most) { return std::exp((2 * share() - 1) * share() * most); };
  options.rule.share *= factor(largest);
  options.rule.horizon *= factor(largest);
  options.rule.floor *= factor(largest);
  options.rule.power *= factor(0.3 * largest);
  return options;
}

SimulatorOptions RuleMoves::change_something(const RuleChoice& best) {
  constexpr std::array<StretchMove, 6> kMoves{{
      {.most_ops = 2000, .largest = 0.5, .raises = true, .lowers = true},
      {.most_ops = 1000, .largest = 0.25, .raises = true, .lowers = true},
      {.most_ops = 5000, .largest = 0.5, .raises = true},
      {.most_ops = 10, .largest = 2, .raises = true, .lowers = true},
      {.most_ops = 10, .largest = 2, .raises = true},
      {.most_ops = 10, .largest = 2, .lowers = true},
  }};
  const size_t number = moves_++ % (kMoves.size() + 2);
  if (number == kMoves.size()) {
    return change_constants(best);
  }
  if (number == kMoves.size() + 1) {
    return change_kind(best);
  }
  const StretchMove& move = kMoves[number];
  SimulatorOptions options = best.options;
  options.bias.resize(step_.values.size(), 1.0);
  const std::vector<uint32_t>& replayed = best.result.replayed;
  const uint32_t last = *std::max_element(replayed.begin(), replayed.end());
  if (move.raises) {
    const uint32_t middle = replayed[below(static_cast<uint32_t>(replayed.size()))];
    change(options.bias, middle, move.most_ops, std::exp(move.largest * share()));
  }
  if (move.lowers) {
    change(options.bias, below(last + 1), move.most_ops, std::exp(-move.largest * share()));
  }
  return options;
}

SimulatorOptions RuleMoves::change_kind(const RuleChoice& best) {
  SimulatorOptions options = best.options;
  options.bias.resize(step_.values.size(), 1.0);
  const double factor = std::exp(2 * share() - 1);
  for (const uint32_t value : kinds_[below(static_cast<uint32_t>(kinds_.size()))]) {
    options.bias[value] *= factor;
  }
  return options;
}

// Multiplies the factors of what the ops around `middle` make.
void RuleMoves::change(std::vector<double>& bias, uint32_t middle, uint32_t most_ops, double factor) {
  const uint32_t half = below(most_ops) / 2;
  const uint32_t end = std::min(middle + half + 1, static_cast<uint32_t>(step_.ops.size()));
  for (uint32_t op = middle - std::min(middle, half); op < end; ++op) {
    for (const uint32_t tensor : step_.ops[op].results) {
      if (step_.tensors[tensor].viewed == kNoId) {
        bias[step_.tensors[tensor].value] *= factor;
      }
    }
  }
}

}  // namespace ac2::internal
