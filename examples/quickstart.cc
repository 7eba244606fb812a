// The smallest use of ac2: a model, a region per block, the same gradients, less memory.
//
// The lines that a program adds stand between the two lines below; the rest of this file is a model and the proof.
#include <torch/torch.h>

#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "ac2/ac2.h"
#include "ac2/testing/counting_allocator.h"

namespace {

using Blocks = std::vector<torch::nn::Sequential>;

at::Tensor forward(Blocks& blocks, at::Tensor x) {
  for (auto& block : blocks) x = x + block->forward(x);
  return x;
}

// ---------------------------------------------------------------------------------------------------------------------
// Keep what matrix products compute, recompute all else in backward.
bool keep_products(const ac2::OpContext& op) {
  return op.is("aten::addmm");
}

at::Tensor checkpointed_forward(Blocks& blocks, at::Tensor x, const ac2::Policy& policy) {
  for (auto& block : blocks) {
    ac2::PolicyScope scope(policy);
    x = x + block->forward(x);
  }
  return x;
}
// ---------------------------------------------------------------------------------------------------------------------

Blocks make_blocks(int count, int64_t dim) {
  Blocks blocks;
  for (int i = 0; i < count; ++i) {
    blocks.push_back(torch::nn::Sequential(torch::nn::LayerNorm(torch::nn::LayerNormOptions({dim})),
                                           torch::nn::Linear(dim, 4 * dim), torch::nn::GELU(), torch::nn::Dropout(0.1),
                                           torch::nn::Linear(4 * dim, dim)));
  }
  return blocks;
}

struct Result {
  std::vector<at::Tensor> gradients;
  int64_t held_bytes = 0;
};

Result train_step(Blocks& blocks, const std::function<at::Tensor()>& run_forward) {
  auto& memory = ac2::testing::CountingAllocator::install();
  torch::manual_seed(1);  // the same dropout every time
  const int64_t before = memory.current_bytes();
  at::Tensor loss = run_forward().square().mean();
  Result result;
  result.held_bytes = memory.current_bytes() - before;
  loss.backward();
  for (auto& block : blocks) {
    for (auto& parameter : block->parameters()) result.gradients.push_back(parameter.grad());
    block->zero_grad();
  }
  return result;
}

bool report(const std::string& name, const Result& result, const Result& plain) {
  bool equal = result.gradients.size() == plain.gradients.size();
  for (size_t i = 0; equal && i < plain.gradients.size(); ++i) {
    equal = at::equal(result.gradients[i], plain.gradients[i]);
  }
  std::cout << name << ": " << result.held_bytes << " bytes held for backward, " << result.gradients.size()
            << " gradients " << (equal ? "equal bit for bit" : "DIFFERENT") << '\n';
  return equal;
}

}  // namespace

int main() {
  ac2::testing::CountingAllocator::install();
  torch::manual_seed(0);
  Blocks blocks = make_blocks(8, 256);
  const at::Tensor x = torch::randn({512, 256});

  const Result plain = train_step(blocks, [&] { return forward(blocks, x); });
  const Result all = train_step(blocks, [&] { return checkpointed_forward(blocks, x, "recompute_all"); });
  const Result some = train_step(blocks, [&] { return checkpointed_forward(blocks, x, keep_products); });

  bool equal = report("no checkpointing  ", plain, plain);
  equal &= report("recompute all     ", all, plain);
  equal &= report("keep the products ", some, plain);
  return equal ? EXIT_SUCCESS : EXIT_FAILURE;
}
