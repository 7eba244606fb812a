#include "benchmarks/simulator/rule_search.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace ac2::internal {

namespace {

// Values that play the same part in a program that repeats itself: results of ops of one name, of one size.
using Kind = std::tuple<std::string, size_t, int64_t>;  // op, which of its results, bytes

// The values of the kinds with the most bytes in all; the kind with the most comes first.
std::vector<std::vector<uint32_t>> largest_kinds(const RecordedStep& step, size_t count) {
  std::map<Kind, std::vector<uint32_t>> values;
  for (const RecordedStep::Op& op : step.ops) {
    for (size_t i = 0; i < op.results.size(); ++i) {
      const RecordedStep::Tensor& tensor = step.tensors[op.results[i]];
      const int64_t bytes = step.values[tensor.value].bytes;
      if (tensor.viewed == kNoId && bytes > 0) {
        values[{op.name, i, bytes}].push_back(tensor.value);
      }
    }
  }
  std::vector<std::pair<int64_t, std::vector<uint32_t>>> sorted;
  for (auto& [kind, members] : values) {
    sorted.emplace_back(-std::get<2>(kind) * static_cast<int64_t>(members.size()), std::move(members));
  }
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::vector<uint32_t>> kinds;
  for (size_t i = 0; i < sorted.size() && i < count; ++i) {
    kinds.push_back(std::move(sorted[i].second));
  }
  return kinds;
}

class Search {
 public:
  Search(const RecordedStep& step, int64_t budget) : step_(step) {
    best_.options = {.budget = budget, .step_known = true};
    best_.result = simulate(step, best_.options);
  }

  RuleChoice run() {
    try_everywhere();
    try_around();
    try_kinds();
    return search_biases(step_, std::move(best_));
  }

 private:
  static constexpr size_t kKinds = 24;

  void try_everywhere() {
    SimulatorOptions options = best_.options;
    for (const bool step_known : {true, false}) {
      options.step_known = step_known;
      for (const double horizon : {0.03, 0.1, 0.3, 1.0, 3.0}) {
        for (const double floor : {0.0, 0.01, 0.03, 0.1}) {
          for (const double share : {0.1, 0.25, 0.5, 1.0}) {
            for (const double power : {1.0, 1.4}) {
              options.rule = {.share = share, .horizon = horizon, .floor = floor, .power = power};
              attempt(step_, options, best_);
            }
          }
        }
      }
    }
  }

  // One constant at a time, in smaller and smaller steps.
  void try_around() {
    for (const double ratio : {1.5, 1.2, 1.1, 1.05}) {
      for (double RuleConstants::*constant :
           {&RuleConstants::share, &RuleConstants::horizon, &RuleConstants::floor, &RuleConstants::power}) {
        for (const double factor : {ratio, 1 / ratio, ratio * ratio, 1 / (ratio * ratio)}) {
          SimulatorOptions options = best_.options;
          options.rule.*constant *= factor;
          attempt(step_, std::move(options), best_);
        }
      }
    }
  }

  // Makes all values of a kind dearer to drop, or cheaper.
  void try_kinds() {
    const std::vector<std::vector<uint32_t>> kinds = largest_kinds(step_, kKinds);
    for (const double factor : {2.0, 0.5, 1.25, 0.8}) {
      for (const std::vector<uint32_t>& kind : kinds) {
        SimulatorOptions options = best_.options;
        options.bias.resize(step_.values.size(), 1.0);
        for (const uint32_t value : kind) {
          options.bias[value] *= factor;
        }
        attempt(step_, std::move(options), best_);
      }
    }
  }

  const RecordedStep& step_;
  RuleChoice best_;
};

}  // namespace

RuleChoice best_rule(const RecordedStep& step, int64_t budget) {
  return Search(step, budget).run();
}

}  // namespace ac2::internal
