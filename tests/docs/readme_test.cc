// The code of README.md: what stands between the tests' own lines is on the page, letter for letter.
#include <gmock/gmock.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>
#include <vector>

#include "ac2/ac2.h"
#include "policies/policies.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using ::testing::HasSubstr;

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int64_t dim) : up(register_module("up", torch::nn::Linear(dim, dim))) {}
  at::Tensor forward(const at::Tensor& x) {
    regions += is_checkpoint_enabled() ? 1 : 0;
    return up->forward(x).sin().cos();
  }
  torch::nn::Linear up;
  int regions = 0;  // forwards that ran in one
};
TORCH_MODULE(Block);

struct ModelImpl : torch::nn::Module {
  ModelImpl() {
    register_module("blocks", blocks);
    for (int i = 0; i < 3; ++i) blocks->push_back(Block(8));
  }
  at::Tensor forward(const at::Tensor& x) { return blocks->forward(x); }
  torch::nn::Sequential blocks;
};
TORCH_MODULE(Model);

namespace program {

std::vector<Block> blocks;

const ac2::Policy policy = ac2::policies::save_compute_intensive();

torch::Tensor forward(torch::Tensor x) {
  for (auto& block : blocks) {
    ac2::PolicyScope scope(policy);
    x = block->forward(x);
  }
  return x;
}

}  // namespace program

class ReadmeTest : public CleanTest {
 protected:
  at::Tensor x = sample({4, 8});
};

TEST_F(ReadmeTest, WhatFitsIsKept) {
  Model model;
  torch::Tensor gradient;
  {
    ac2::PolicyScope scope;
    torch::Tensor loss = model->forward(x).sum();
    loss.backward();
    EXPECT_EQ(scope.trace()->stats().recomputed_ops, 0);
    gradient = x.grad().clone();
  }
  x.mutable_grad() = at::Tensor();
  model->forward(x).sum().backward();
  EXPECT_TRUE(same_bits(gradient, x.grad()));
}

TEST_F(ReadmeTest, WhatIsAddedToAProgram) {
  program::blocks = {Block(8), Block(8)};
  const at::Tensor loss = program::forward(x).sum();
  EXPECT_EQ(program::blocks[0]->regions + program::blocks[1]->regions, 2);
  loss.backward();
  const at::Tensor gradient = x.grad().clone();
  x.mutable_grad() = at::Tensor();
  at::Tensor plain = x;
  for (auto& block : program::blocks) plain = block->forward(plain);
  plain.sum().backward();
  EXPECT_TRUE(same_bits(gradient, x.grad()));
  program::blocks.clear();
}

TEST_F(ReadmeTest, ANumberInsteadOfAPolicy) {
  ac2::PolicyScope scope({.memory_budget = int64_t{2} << 30});
  const at::Tensor y = x.sin().cos();
  y.sum().backward();
  EXPECT_EQ(scope.trace()->stats().recomputed_ops, 0);
}

TEST_F(ReadmeTest, RegionsShareABudget) {
  ac2::MemoryBudget budget(1 << 20);
  at::Tensor y = x;
  for (int i = 0; i < 2; ++i) {
    PolicyScope scope({.memory_budget = budget});
    y = y.sin().cos();
  }
  EXPECT_GT(budget.held_bytes(), 0);
}

TEST_F(ReadmeTest, Policies) {
  const at::Tensor a = sample({8, 8});
  const auto model = [](const std::vector<at::Tensor>& inputs) -> Tensors {
    at::Tensor t = (inputs[0].mm(inputs[1]) + inputs[0]).sigmoid();
    t = at::gelu(t).mm(inputs[1]);
    ac2::name_tensor(t, "attn_out");
    return {t.sin()};
  };
  using namespace ac2::policies;
  for (const Policy& policy : {recompute_all(), save_compute_intensive(), save_ops({"aten::mm", "aten::add.Tensor"}),
                               recompute_ops({"aten::gelu"}), must_save_all(), speed(), memory(),
                               save_only_these_names({"attn_out"}), offload_ops({"aten::mm"})}) {
    SCOPED_TRACE(policy.name());
    expect_same_gradients(model, {x, a}, policy);
  }
  PolicyScope scope(quantize_ops({"aten::*"}, 8));
  at::Tensor t = x.sin();
  ac2::name_tensor(t, "attn_out");
  EXPECT_TRUE(same_bits(gradient_of(t, x), gradient_of(x.sin(), x)));
}

TEST_F(ReadmeTest, ResultsInFiles) {
  // Not every machine that runs this has the directory.
  try {
    PolicyScope scope(ac2::policies::spill_to_file("/scratch", {"aten::*"}));
    const at::Tensor y = x.sin().cos();
    EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("/scratch"));
  }
}

TEST_F(ReadmeTest, APolicyByItsName) {
  ac2::PolicyScope scope("speed");
  const at::Tensor y = x.mm(sample({8, 8})).sin();
  y.sum().backward();
  EXPECT_EQ(scope.trace()->stats().recomputed_ops, 0);
}

TEST_F(ReadmeTest, AnyCallableAndATag) {
  ac2::PolicyScope scope([](const ac2::OpContext& op) {
    return op.is("aten::mm") ? ac2::CheckpointPolicy::MUST_SAVE : ac2::CheckpointPolicy::PREFER_RECOMPUTE;
  });
  ac2::tag_with_policy(x, ac2::CheckpointPolicy::MUST_SAVE);
  const at::Tensor y = x.mm(sample({8, 8})).sin().cos();
  y.sum().backward();
  EXPECT_EQ(scope.trace()->stats().recomputed_ops, 1);  // sin, for cos
}

TEST_F(ReadmeTest, AFormOfYourOwn) {
  const auto pack = [](const at::Tensor& tensor) { return c10::IValue(tensor.to(at::kDouble)); };
  const auto unpack = [](const c10::IValue& packed) { return packed.toTensor().to(at::kFloat); };
  PolicyScope scope([&](const OpContext&) -> PolicyDecision { return SaveWithHooks{pack, unpack}; });
  const at::Tensor y = x.sin().cos();
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
  EXPECT_EQ(scope.trace()->stats().recomputed_ops, 0);
}

TEST_F(ReadmeTest, ByModule) {
  torch::nn::Sequential layers;
  for (int i = 0; i < 4; ++i) layers->push_back(Block(8));
  Model model;
  auto block = ac2::checkpoint_wrapper(Block(256));
  ac2::Checkpointed<torch::nn::Linear> fc(256, 10);
  at::Tensor y = ac2::checkpoint_sequential(layers, 4, x);
  ac2::apply_checkpointing(model, {.modules = {"blocks.*"}});

  y = model->forward(y);
  EXPECT_EQ(model->blocks->ptr(2)->as<BlockImpl>()->regions, 1);
  EXPECT_EQ(layers->ptr(0)->as<BlockImpl>()->regions, 1);
  EXPECT_EQ(layers->ptr(3)->as<BlockImpl>()->regions, 0);  // the last segment
  y.sum().backward();
  fc->forward(block->forward(sample({2, 256}))).sum().backward();
  EXPECT_GT(fc->weight.grad().numel(), 0);
}

}  // namespace
}  // namespace ac2::test
