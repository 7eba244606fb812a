// The cost of recording and replaying per op: chains of one cheap op on 8 elements, where the kernel is nothing and the
// bookkeeping everything.
//
//   record_benchmark                                    all, a few minutes
//   record_benchmark --benchmark_filter=cos/recompute_all/1000/
//
// Every iteration runs the plain chain and the chain under the policy, in turns, and reports medians in ns of CPU time
// per op:
//   forward, backward      under the policy; backward includes freeing the graph
//   forward+, backward+    what of that is on top of the plain chain in the same iteration
//   kernel                 the op alone, without autograd: the part of backward+ that is the recomputed op itself
// The policy "1024GiB" is a memory budget that is never reached: everything is kept, and kept count of. The policy
// "none" compares the plain chain with itself: its forward+ and backward+ are the noise of the machine.
#include <benchmark/benchmark.h>
#include <time.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/chain.h"
#include "examples/checkpointing.h"
#include "examples/table.h"

namespace {

using benchmarks::leaf;
using benchmarks::Link;
using benchmarks::make_link;
using benchmarks::run_chain;

// CPU time of the process, which has one thread here: what other programs do meanwhile is not in it.
double nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
}

struct Times {
  double forward = 0;
  double backward = 0;
};

Times time_chain(const Link& link, int64_t length, const gpt::Checkpointing& checkpointing) {
  const at::Tensor gradient = torch::ones({8});
  Times times;
  const double start = nanoseconds();
  at::Tensor y = gpt::checkpointed(checkpointing, [&] { return run_chain(link, leaf(), length); });
  times.forward = nanoseconds() - start;

  const double turn = nanoseconds();
  y.backward(gradient);
  y.reset();
  times.backward = nanoseconds() - turn;
  return times;
}

double time_kernels(const Link& link, int64_t length) {
  const torch::NoGradGuard no_grad;
  const at::Tensor x = leaf();
  const double start = nanoseconds();
  benchmark::DoNotOptimize(run_chain(link, x, length));
  return nanoseconds() - start;
}

void measure(benchmark::State& state, const std::string& op, const std::string& policy_name, int64_t length) {
  const Link link = make_link(op);
  const gpt::Checkpointing checkpointing = gpt::checkpointing_by_name(policy_name);
  std::vector<double> forward, backward, forward_over, backward_over, kernel;
  // The memory of a first long chain comes from the system, page by page.
  time_chain(link, length, std::nullopt);
  time_chain(link, length, checkpointing);
  bool plain_first = true;
  for (auto _ : state) {
    Times plain, with_policy;
    if (plain_first) plain = time_chain(link, length, std::nullopt);
    with_policy = time_chain(link, length, checkpointing);
    if (!plain_first) plain = time_chain(link, length, std::nullopt);
    plain_first = !plain_first;

    kernel.push_back(time_kernels(link, length));
    forward.push_back(with_policy.forward);
    backward.push_back(with_policy.backward);
    forward_over.push_back(with_policy.forward - plain.forward);
    backward_over.push_back(with_policy.backward - plain.backward);
    state.SetIterationTime((with_policy.forward + with_policy.backward) * 1e-9);
  }
  const auto per_op = [&](const std::vector<double>& times) {
    return gpt::quantile(times, 0.5) / static_cast<double>(length);
  };
  state.counters["forward"] = per_op(forward);
  state.counters["forward+"] = per_op(forward_over);
  state.counters["backward"] = per_op(backward);
  state.counters["backward+"] = per_op(backward_over);
  state.counters["kernel"] = per_op(kernel);
}

// 600,000 ops in all, but never fewer than four chains, so that plain goes first as often as second.
int64_t iterations(int64_t length) {
  return std::clamp<int64_t>(600'000 / length, 4, 200);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return EXIT_FAILURE;
  at::set_num_threads(1);
  for (const std::string op : {"cos", "mul"}) {
    for (const std::string policy : {"none", "recompute_all", "must_save_all", "1024GiB"}) {
      for (const int64_t length : {1'000, 10'000, 100'000, 1'000'000}) {
        const std::string name = op + "/" + policy + "/" + std::to_string(length);
        benchmark::RegisterBenchmark(name.c_str(), measure, op, policy, length)
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond)
            ->Iterations(iterations(length));
      }
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return EXIT_SUCCESS;
}
