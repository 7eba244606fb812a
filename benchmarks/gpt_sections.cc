// A training step of train_gpt's model under a policy, as one section that callgrind counts; see counted_section.h.
// `count_instructions.sh --gpt` makes a table of them:
//
//   gpt_sections POLICY step|block [SEQUENCES]    POLICY as train_gpt takes it, with auto and sizes among them; what a
//                                                 region is around; how many sequences a step has, by default one
//
// One thread, because callgrind adds up what threads do while they wait for each other.
#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "absl/strings/numbers.h"
#include "benchmarks/counted_section.h"
#include "examples/checkpointing.h"
#include "examples/gpt_model.h"

namespace {

class Training {
 public:
  Training(const gpt::Checkpointing& checkpointing, int64_t sequences) : checkpointing_(checkpointing) {
    const gpt::GptOptions& options = model_->options();
    tokens_ = torch::randint(options.vocabulary, {sequences, options.context + 1}, torch::kLong);
  }

  // Forward, backward, and the optimizer.
  void step() {
    const int64_t context = model_->options().context;
    at::Tensor loss;
    {
      const bool around_step = checkpointing_.span == gpt::RegionSpan::kStep;
      const auto region = gpt::open_region(around_step ? checkpointing_ : gpt::Checkpointing());
      const at::Tensor logits =
          model_->forward(tokens_.narrow(1, 0, context), around_step ? gpt::Checkpointing() : checkpointing_);
      loss = torch::cross_entropy_loss(logits.flatten(0, 1), tokens_.narrow(1, 1, context).flatten());
    }
    loss.backward();
    optimizer_.step();
    optimizer_.zero_grad();
  }

 private:
  const gpt::Checkpointing checkpointing_;
  gpt::Gpt model_{gpt::GptOptions()};
  torch::optim::AdamW optimizer_{model_->parameters(), torch::optim::AdamWOptions(1e-3)};
  at::Tensor tokens_;
};

}  // namespace

int main(int argc, char** argv) {
  // By default the smallest step there is: what a region costs is the same for larger ones, and a smaller share of
  // them.
  int64_t sequences = 1;
  if (argc < 3 || argc > 4 || (argc == 4 && (!absl::SimpleAtoi(argv[3], &sequences) || sequences < 1))) {
    std::fprintf(stderr, "usage: gpt_sections POLICY step|block [SEQUENCES], with 1 sequence or more\n");
    return EXIT_FAILURE;
  }
  at::set_num_threads(1);
  torch::manual_seed(0);
  gpt::Checkpointing checkpointing = gpt::checkpointing_by_name(argv[1]);
  checkpointing.span = gpt::span_by_name(argv[2]);
  Training training(checkpointing, sequences);
  // Work that happens once is no cost of a step: look-ups, the first chunks of every pool, the optimizer's state.
  training.step();
  std::printf("step 1\n");
  counted_section([&] { training.step(); });
  return EXIT_SUCCESS;
}
