// Time and memory of a training step of GPT blocks under every policy, relative to no checkpointing.
//
//   gpt_benchmark                  8 blocks, 256 channels, 256 tokens, batch 4, one thread, no dropout
//   gpt_benchmark --rounds=50      more rounds, narrower spread
//   gpt_benchmark --budgets=40MiB,20MiB   and under memory budgets, shared by the blocks
//   gpt_benchmark --device=cuda --dtype=bfloat16 --layers=24 --dim=1024 --heads=16 --context=1024 --batch=8
//                 --policies=none,recompute_all,save_compute_intensive,offload,offload_inputs,quantize8
//   gpt_benchmark --trace=gpt             one more step of each policy, as gpt.POLICY.json for Perfetto
//
// Blocks only, no embedding, output layer or optimizer: those cost the same under every policy and would only make the
// ratios smaller. The policies take turns, in an order that rotates from round to round, and every ratio is one of two
// times of the same round. On an accelerator bytes are those requested from its allocator, the clock stops when the
// device is done, and gradients are compared with deterministic kernels, which are not those that are timed.
#include <absl/flags/flag.h>
#include <absl/flags/parse.h>
#include <absl/flags/usage.h>
#include <time.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ac2/ac2.h"
#include "examples/checkpointing.h"
#include "examples/device_meter.h"
#include "examples/gpt_model.h"
#include "examples/table.h"

ABSL_FLAG(int64_t, layers, 8, "Transformer blocks, each a region of its own");
ABSL_FLAG(int64_t, dim, 256, "channels");
ABSL_FLAG(int64_t, heads, 8, "attention heads; must divide dim");
ABSL_FLAG(int64_t, context, 256, "tokens per sequence");
ABSL_FLAG(int64_t, batch, 4, "sequences per step");
ABSL_FLAG(double, dropout, 0, "share of values set to zero, 0 to 1");
ABSL_FLAG(std::string, device, "cpu", "where to train: cpu, or cuda in a build for it");
ABSL_FLAG(std::string, dtype, "float", "of weights and hidden states: float, bfloat16 or half");
ABSL_FLAG(std::vector<std::string>, policies, {},
          "what to time instead of the usual: none (which must be the first), or anything that train_gpt takes as "
          "--policy, such as quantize8");
ABSL_FLAG(std::string, trace, "", "if set, where to write traces: this, a dot, the policy, and .json");
ABSL_FLAG(std::vector<std::string>, budgets, {}, "memory budgets to time too, such as 40MiB,20MiB");
ABSL_FLAG(int64_t, rounds, 20, "timed steps of every policy");
ABSL_FLAG(int64_t, warmup, 2, "steps of every policy before that");
ABSL_FLAG(int64_t, threads, 1, "threads of LibTorch");

namespace {

double seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Step {
  double wall = 0;
  double cpu = 0;  // of the process: what other programs do on the machine is not in it
  int64_t held_bytes = 0;
  int64_t peak_bytes = 0;
};

struct Run {
  std::string name;
  gpt::Checkpointing checkpointing;
  std::vector<Step> steps;
  bool same_gradients = true;
  double difference = 0;  // of gradients, where they are not meant to be the same: |g - exact| / |exact|
};

at::ScalarType dtype_by_name(const std::string& name) {
  if (name == "float") return at::kFloat;
  if (name == "bfloat16") return at::kBFloat16;
  if (name == "half") return at::kHalf;
  TORCH_CHECK(false, "dtype is \"", name, "\"; expected float, bfloat16 or half.");
}

// The process's, of all devices, until it is gone.
class Profile {
 public:
  Profile(std::string file, bool on_cpu) : file_(std::move(file)) {
    const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
    std::set<torch::profiler::impl::ActivityType> activities = {torch::profiler::impl::ActivityType::CPU};
    if (!on_cpu) activities.insert(torch::profiler::impl::ActivityType::CUDA);
    torch::autograd::profiler::prepareProfiler(config, activities);
    torch::autograd::profiler::enableProfiler(config, activities);
  }
  ~Profile() { torch::autograd::profiler::disableProfiler()->save(file_); }
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

 private:
  std::string file_;
};

class Bench {
 public:
  Bench(const gpt::GptOptions& options, c10::Device device, at::ScalarType dtype)
      : blocks_(options), memory_(device), on_cpu_(device.is_cpu()) {
    blocks_->to(device, dtype);
    input_ = torch::randn({absl::GetFlag(FLAGS_batch), options.context, options.dim}).to(device, dtype);
  }

  bool on_cpu() const { return on_cpu_; }

  Step step(const gpt::Checkpointing& checkpointing) {
    blocks_->zero_grad();
    torch::manual_seed(1);
    const gpt::DeviceMeter& memory = memory_;
    memory.synchronize();
    const int64_t before = memory.current_bytes();
    memory.reset_peak();
    const double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);

    // In a model the first block's input comes from an embedding and is held for backward like the others.
    at::Tensor loss = blocks_->forward(input_.clone().requires_grad_(), checkpointing).sum();
    Step step;
    step.held_bytes = memory.current_bytes() - before;
    loss.backward();
    // Freeing the graph belongs to the step.
    loss.reset();
    memory.synchronize();

    step.wall = seconds(CLOCK_MONOTONIC) - wall;
    step.cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    step.peak_bytes = memory.peak_bytes() - before;
    return step;
  }

  // The kernels of forward, and nothing of autograd: what running forward once more costs.
  Step forward_alone() {
    const torch::NoGradGuard no_grad;
    Step step;
    memory_.synchronize();
    const double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    blocks_->forward(input_, std::nullopt);
    memory_.synchronize();
    step.wall = seconds(CLOCK_MONOTONIC) - wall;
    step.cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    return step;
  }

  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> result;
    for (const auto& parameter : blocks_->parameters()) result.push_back(parameter.grad().clone());
    return result;
  }

 private:
  gpt::Blocks blocks_;
  at::Tensor input_;
  gpt::DeviceMeter memory_;
  bool on_cpu_;
};

double relative_difference(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const at::Tensor exact = expected[i].to(at::kFloat);
    difference += (actual[i].to(at::kFloat) - exact).square().sum().item<double>();
    size += exact.square().sum().item<double>();
  }
  return std::sqrt(difference / size);
}

void compare_gradients(Bench& bench, std::vector<Run>& runs) {
  at::Context& context = at::globalContext();
  if (!bench.on_cpu()) {
    context.setDeterministicAlgorithms(true, /*warn_only=*/true);
    context.setDeterministicFillUninitializedMemory(false);
    context.setSDPUseCuDNN(false);  // whose gradients are deterministic only where warn_only is false
  }
  bench.step(std::nullopt);
  const std::vector<at::Tensor> expected = bench.gradients();
  for (Run& run : runs) {
    bench.step(run.checkpointing);
    const std::vector<at::Tensor> gradients = bench.gradients();
    if (run.checkpointing.exact) {
      run.same_gradients = std::ranges::equal(gradients, expected,
                                              [](const at::Tensor& a, const at::Tensor& b) { return at::equal(a, b); });
    } else {
      run.difference = relative_difference(gradients, expected);
    }
  }
  context.setDeterministicAlgorithms(false, false);
}

std::string compared(const Run& run) {
  if (!run.checkpointing.exact) return gpt::fixed(100 * run.difference, 2) + " % off";
  return run.same_gradients ? "equal" : "DIFFERENT";
}

double median_ratio(const std::vector<Step>& steps, const std::vector<Step>& plain, double Step::*time) {
  std::vector<double> ratios;
  for (size_t i = 0; i < steps.size(); ++i) ratios.push_back(steps[i].*time / plain[i].*time);
  return gpt::quantile(ratios, 0.5);
}

void print_runs(const std::vector<Run>& runs) {
  std::vector<std::vector<std::string>> rows;
  for (const Run& run : runs) {
    std::vector<double> wall, ratios;
    int64_t held = 0, peak = 0;
    for (size_t i = 0; i < run.steps.size(); ++i) {
      const Step &step = run.steps[i], &plain = runs[0].steps[i];
      wall.push_back(step.wall * 1e3);
      ratios.push_back(step.wall / plain.wall);
      held = std::max(held, step.held_bytes);
      peak = std::max(peak, step.peak_bytes);
    }
    rows.push_back({run.name, gpt::fixed(gpt::quantile(wall, 0.5), 1) + " ms",
                    gpt::fixed(gpt::quantile(ratios, 0.5), 3),
                    gpt::fixed(gpt::quantile(ratios, 0.25), 3) + " to " + gpt::fixed(gpt::quantile(ratios, 0.75), 3),
                    gpt::fixed(median_ratio(run.steps, runs[0].steps, &Step::cpu), 3), gpt::mebibytes(held),
                    gpt::mebibytes(peak), compared(run)});
  }
  gpt::print_table(
      std::cout,
      {"policy", "step time", "/ none", "middle half", "CPU time / none", "held after forward", "peak", "gradients"},
      rows);
}

bool run() {
  const gpt::GptOptions options{.context = absl::GetFlag(FLAGS_context),
                                .layers = absl::GetFlag(FLAGS_layers),
                                .dim = absl::GetFlag(FLAGS_dim),
                                .heads = absl::GetFlag(FLAGS_heads),
                                .dropout = absl::GetFlag(FLAGS_dropout)};
  gpt::check_options(options);
  for (const auto& [name, value] :
       {std::pair("batch", absl::GetFlag(FLAGS_batch)), std::pair("rounds", absl::GetFlag(FLAGS_rounds)),
        std::pair("threads", absl::GetFlag(FLAGS_threads))}) {
    TORCH_CHECK(value > 0, name, " is ", value, "; it must be at least 1.");
  }
  at::set_num_threads(static_cast<int>(absl::GetFlag(FLAGS_threads)));
  const c10::Device device(absl::GetFlag(FLAGS_device));

  std::vector<Run> runs;
  std::vector<std::string> names = absl::GetFlag(FLAGS_policies);
  if (names.empty()) names = gpt::policy_names();
  TORCH_CHECK(names.front() == "none", "The first of --policies is \"", names.front(),
              "\"; expected none, which the others are compared with.");
  const std::vector<std::string> budgets = absl::GetFlag(FLAGS_budgets);
  names.insert(names.end(), budgets.begin(), budgets.end());
  for (const std::string& name : names) runs.push_back({name, gpt::checkpointing_by_name(name), {}});
  torch::manual_seed(0);
  Bench bench(options, device, dtype_by_name(absl::GetFlag(FLAGS_dtype)));
  compare_gradients(bench, runs);
  std::vector<Step> forward_alone;
  const int64_t warmup = absl::GetFlag(FLAGS_warmup);
  for (int64_t round = -warmup; round < absl::GetFlag(FLAGS_rounds); ++round) {
    for (size_t turn = 0; turn < runs.size(); ++turn) {
      Run& run = runs[(turn + static_cast<size_t>(round + warmup)) % runs.size()];
      const Step step = bench.step(run.checkpointing);
      if (round >= 0) run.steps.push_back(step);
    }
    const Step forward = bench.forward_alone();
    if (round >= 0) forward_alone.push_back(forward);
  }
  if (const std::string trace = absl::GetFlag(FLAGS_trace); !trace.empty()) {
    for (const Run& run : runs) {
      const Profile profile(trace + "." + run.name + ".json", bench.on_cpu());
      bench.step(run.checkpointing);
    }
  }
  std::cout << options.layers << " blocks, " << options.dim << " channels, " << options.heads << " heads, "
            << options.context << " tokens, batch " << absl::GetFlag(FLAGS_batch) << ", dropout " << options.dropout
            << ", " << absl::GetFlag(FLAGS_dtype) << " on " << device << ", " << at::get_num_threads() << " thread(s), "
            << absl::GetFlag(FLAGS_rounds) << " rounds\n\n";
  print_runs(runs);
  std::cout << "\nForward alone, without autograd, takes "
            << gpt::fixed(median_ratio(forward_alone, runs[0].steps, bench.on_cpu() ? &Step::cpu : &Step::wall), 3)
            << " of the " << (bench.on_cpu() ? "CPU " : "")
            << "time of a step: running all of it again cannot cost less.\n";
  return std::ranges::all_of(runs, &Run::same_gradients);
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Times training steps of GPT blocks under every checkpointing policy.");
  absl::ParseCommandLine(argc, argv);
  try {
    return run() ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const c10::Error& error) {
    std::cerr << "gpt_benchmark: " << error.what_without_backtrace() << '\n';
    return EXIT_FAILURE;
  }
}
