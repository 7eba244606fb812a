// Time and memory of a training step of GPT blocks under every policy, relative to no checkpointing.
//
//   gpt_benchmark                  8 blocks, 256 channels, 256 tokens, batch 4, one thread, no dropout
//   gpt_benchmark --rounds=50      more rounds, narrower spread
//   gpt_benchmark --budgets=40MiB,20MiB   and under memory budgets, shared by the blocks
//
// Blocks only, no embedding, output layer or optimizer: those cost the same under every policy and would only make the
// ratios smaller. The policies take turns, in an order that rotates from round to round, and every ratio is one of two
// times of the same round.
#include <absl/flags/flag.h>
#include <absl/flags/parse.h>
#include <absl/flags/usage.h>
#include <time.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "ac2/ac2.h"
#include "ac2/testing/counting_allocator.h"
#include "examples/checkpointing.h"
#include "examples/gpt_model.h"
#include "examples/table.h"

ABSL_FLAG(int64_t, layers, 8, "Transformer blocks, each a region of its own");
ABSL_FLAG(int64_t, dim, 256, "channels");
ABSL_FLAG(int64_t, heads, 8, "attention heads; must divide dim");
ABSL_FLAG(int64_t, context, 256, "tokens per sequence");
ABSL_FLAG(int64_t, batch, 4, "sequences per step");
ABSL_FLAG(double, dropout, 0, "share of values set to zero, 0 to 1");
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
};

class Bench {
 public:
  explicit Bench(const gpt::GptOptions& options) : blocks_(options) {
    input_ = torch::randn({absl::GetFlag(FLAGS_batch), options.context, options.dim});
  }

  Step step(const gpt::Checkpointing& checkpointing) {
    blocks_->zero_grad();
    torch::manual_seed(1);
    auto& memory = ac2::testing::CountingAllocator::install();
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

    step.wall = seconds(CLOCK_MONOTONIC) - wall;
    step.cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    step.peak_bytes = memory.peak_bytes() - before;
    return step;
  }

  // The kernels of forward, and nothing of autograd: what running forward once more costs.
  Step forward_alone() {
    const torch::NoGradGuard no_grad;
    Step step;
    const double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    blocks_->forward(input_, std::nullopt);
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
};

void compare_gradients(Bench& bench, std::vector<Run>& runs) {
  bench.step(std::nullopt);
  const std::vector<at::Tensor> expected = bench.gradients();
  for (Run& run : runs) {
    bench.step(run.checkpointing);
    run.same_gradients = std::ranges::equal(bench.gradients(), expected,
                                            [](const at::Tensor& a, const at::Tensor& b) { return at::equal(a, b); });
  }
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
                    gpt::mebibytes(peak), run.same_gradients ? "equal" : "DIFFERENT"});
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
  ac2::testing::CountingAllocator::install();

  std::vector<Run> runs;
  std::vector<std::string> names = gpt::policy_names();
  const std::vector<std::string> budgets = absl::GetFlag(FLAGS_budgets);
  names.insert(names.end(), budgets.begin(), budgets.end());
  for (const std::string& name : names) runs.push_back({name, gpt::checkpointing_by_name(name), {}});
  torch::manual_seed(0);
  Bench bench(options);
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
  std::cout << options.layers << " blocks, " << options.dim << " channels, " << options.heads << " heads, "
            << options.context << " tokens, batch " << absl::GetFlag(FLAGS_batch) << ", dropout " << options.dropout
            << ", " << at::get_num_threads() << " thread(s), " << absl::GetFlag(FLAGS_rounds) << " rounds\n\n";
  print_runs(runs);
  std::cout << "\nForward alone, without autograd, takes "
            << gpt::fixed(median_ratio(forward_alone, runs[0].steps, &Step::cpu), 3)
            << " of the CPU time of a step: running all of it again cannot cost less.\n";
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
