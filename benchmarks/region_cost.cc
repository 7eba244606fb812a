// The least time of a step of ten ops on eight numbers, forward and backward, with a region a step, in microseconds:
//
//   region_cost [OPS]      peers/region_cost.py is the same from Python
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <absl/strings/numbers.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "ac2/memory_budget.h"
#include "ac2/scope.h"

namespace {

constexpr int kRounds = 1000;
constexpr int kSteps = 10;

struct Way {
  std::string name;
  std::function<void(std::optional<ac2::PolicyScope>&)> open;
  double least = std::numeric_limits<double>::infinity();
};

void step(const at::Tensor& weight, int ops, const Way& way) {
  weight.mutable_grad().reset();
  at::Tensor loss;
  {
    std::optional<ac2::PolicyScope> scope;
    way.open(scope);
    at::Tensor x = weight;
    for (int i = 0; i < ops; ++i) x = x.cos();
    loss = x.sum();
  }
  loss.backward();
}

}  // namespace

int main(int argc, char** argv) {
  int ops = 10;
  if (argc > 2 || (argc > 1 && !absl::SimpleAtoi(argv[1], &ops)) || ops < 0) {
    std::cerr << "region_cost: expected a number of ops, as in region_cost 10\n";
    return EXIT_FAILURE;
  }
  at::set_num_threads(1);
  const at::Tensor weight = at::ones({8}).set_requires_grad(true);
  std::vector<Way> ways = {
      {"no region", [](auto&) {}},
      {"recompute_all", [](auto& scope) { scope.emplace("recompute_all"); }},
      {"must_save_all", [](auto& scope) { scope.emplace("must_save_all"); }},
      {"whatever_fits()", [](auto& scope) { scope.emplace(ac2::ScopeOptions{.memory_budget = ac2::whatever_fits()}); }},
  };
  for (int round = 0; round < kRounds; ++round) {
    for (Way& way : ways) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < kSteps; ++i) step(weight, ops, way);
      const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
      way.least = std::min(way.least, taken.count() / kSteps);
    }
  }
  for (const Way& way : ways) std::printf("%s: %.1f\n", way.name.c_str(), way.least);
  return EXIT_SUCCESS;
}
