// Draws what one training step holds for backward, three times on one time line: as plain autograd holds it,
// recomputed, and under a memory budget of a third of what the first step held. README.md shows the chart.
//
//   memory_picture memory.html
//
// The steps train the blocks of the GPT that train_gpt trains, at the same sizes and without what is around them. The
// chart has parameters and what an op makes while it runs, too, which the budget does not count.
#include <torch/torch.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <optional>
#include <string>

#include "ac2/ac2.h"
#include "examples/checkpointing.h"
#include "examples/gpt_model.h"
#include "examples/passive_threads.h"

namespace gpt {
namespace {

constexpr GptOptions kOptions{.dropout = 0.05};
constexpr int64_t kBatch = 8;

at::Tensor loss_of(Blocks& blocks, const at::Tensor& x, const Checkpointing& checkpointing) {
  return blocks->forward(x, checkpointing).square().mean();
}

void train_plain(Blocks& blocks, const at::Tensor& x) {
  loss_of(blocks, x, std::nullopt).backward();
  blocks->zero_grad();
}

// Each block is a region of its own.
void train_in_regions(Blocks& blocks, const at::Tensor& x, const ac2::Policy& policy, Traces& traces) {
  Checkpointing checkpointing(policy);
  checkpointing.traces = &traces;
  loss_of(blocks, x, checkpointing).backward();
  blocks->zero_grad();
}

// All blocks are one region. Returns the bytes that it holds when forward has ended.
int64_t train_in_one_region(Blocks& blocks, const at::Tensor& x, const ac2::Policy& policy, ac2::ScopeOptions options,
                            Traces& traces) {
  options.timeline = true;
  at::Tensor loss;
  {
    const ac2::PolicyScope scope(policy, options);
    traces.push_back(scope.trace());
    loss = loss_of(blocks, x, std::nullopt);
  }
  const int64_t held_bytes = traces.back()->stats().saved_bytes;
  loss.backward();
  blocks->zero_grad();
  return held_bytes;
}

void draw(const std::string& path) {
  torch::manual_seed(1);
  Blocks blocks(kOptions);
  const at::Tensor x = torch::randn({kBatch, kOptions.context, kOptions.dim});
  train_plain(blocks, x);  // so that no step below pays for what LibTorch does once

  Traces traces;
  const int64_t plain_bytes = train_in_one_region(blocks, x, "must_save_all", {}, traces);
  train_in_regions(blocks, x, "recompute_all", traces);
  const int64_t mib = plain_bytes / 3 >> 20;
  const ac2::Policy keep_what_fits =
      ac2::Policy(ac2::CheckpointPolicy::PREFER_SAVE).named("memory_budget of " + std::to_string(mib) + " MiB");
  train_in_one_region(blocks, x, keep_what_fits, {.memory_budget = mib << 20}, traces);
  ac2::write_report(traces, path);
  std::cout << "Three training steps, and what each held for backward: " << path << '\n';
}

}  // namespace
}  // namespace gpt

int main(int argc, char** argv) {
  gpt::use_passive_threads(argv);
  if (argc != 2) {
    std::cerr << "usage: memory_picture FILE.html\n";
    return EXIT_FAILURE;
  }
  try {
    gpt::draw(argv[1]);
    return EXIT_SUCCESS;
  } catch (const c10::Error& error) {
    std::cerr << "memory_picture: " << error.what_without_backtrace() << '\n';
  } catch (const std::exception& error) {
    std::cerr << "memory_picture: " << error.what() << '\n';
  }
  return EXIT_FAILURE;
}
