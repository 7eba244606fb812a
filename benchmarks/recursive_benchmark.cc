// Recursive checkpointing: what a chain of N equal ops costs in few live values, by a memory budget alone.
//
//   recursive_benchmark                      N from 100 to 100,000, prints comma-separated values; see
//   benchmarks/README.md recursive_benchmark --longest=10000
//
// Columns:
//   ops            N
//   live           "sqrt": 2 * sqrt(N) + 4 live values; "log": 3 * log2(N)
//   values         so many
//   peak_values    the most that forward and backward held, gradients and outputs included, in values; counted
//   replayed       ops run again in backward; counted
//   replayed_per_op  replayed / N
//   us_per_op      microseconds of forward and backward per op of the chain, evictions included
#include <absl/flags/flag.h>
#include <absl/flags/parse.h>
#include <absl/flags/usage.h>
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

#include "ac2/ac2.h"
#include "ac2/testing/counting_allocator.h"

ABSL_FLAG(int64_t, longest, 100'000, "ops of the longest chain");

namespace {

constexpr int64_t kElements = 64;
constexpr int64_t kBytes = kElements * 4;

void run(int64_t ops, const std::string& live, int64_t values) {
  auto& memory = ac2::testing::CountingAllocator::install();
  at::Tensor x = torch::ones({kElements}, torch::requires_grad());
  const at::Tensor gradient = torch::ones({kElements});
  const int64_t before = memory.current_bytes();
  memory.reset_peak();
  const auto start = std::chrono::steady_clock::now();
  std::shared_ptr<const ac2::Trace> trace;
  at::Tensor y = x;
  {
    // Modelled costs: all ops cost the same, and the figures are the same on every machine.
    ac2::PolicyScope scope({.memory_budget = values * kBytes, .modelled_costs = true});
    trace = scope.trace();
    for (int64_t i = 0; i < ops; ++i) y = y.sin();
  }
  y.backward(gradient);
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  const int64_t replayed = trace->stats().recomputed_ops;
  const auto n = static_cast<double>(ops);
  std::cout << ops << ',' << live << ',' << values << ',' << (memory.peak_bytes() - before) / kBytes << ',' << replayed
            << ',' << static_cast<double>(replayed) / n << ',' << time.count() / n << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Extra ops of a chain that is trained in few live values.");
  absl::ParseCommandLine(argc, argv);
  at::set_num_threads(1);
  std::cout << "ops,live,values,peak_values,replayed,replayed_per_op,us_per_op" << std::endl;
  try {
    for (const int64_t ops : {100, 300, 1'000, 3'000, 10'000, 30'000, 100'000}) {
      if (ops > absl::GetFlag(FLAGS_longest)) break;
      const auto n = static_cast<double>(ops);
      run(ops, "sqrt", std::llround(2 * std::sqrt(n)) + 4);
      run(ops, "log", std::llround(3 * std::log2(n)));
    }
  } catch (const c10::Error& error) {
    std::cerr << "recursive_benchmark: " << error.what_without_backtrace() << '\n';
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
