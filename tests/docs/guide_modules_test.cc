// The code of docs/guide.md, its chapter on modules: what stands between the tests' own lines is on the page, letter
// for letter.
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/transformerlayer.h>

#include <string>
#include <vector>

#include "ac2/ac2.h"
#include "policies/policies.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int64_t dim) : fc1(register_module("fc1", torch::nn::Linear(dim, dim))) {}
  at::Tensor forward(const at::Tensor& x) {
    regions += is_checkpoint_enabled() ? 1 : 0;
    return fc1->forward(x).sin().cos();
  }
  torch::nn::Linear fc1;
  int regions = 0;  // forwards that ran in one
};
TORCH_MODULE(Block);

struct ModelImpl : torch::nn::Module {
  ModelImpl() {
    register_module("blocks", blocks);
    for (int i = 0; i < 3; ++i) {
      blocks->push_back(torch::nn::TransformerEncoderLayer(torch::nn::TransformerEncoderLayerOptions(8, 2).dropout(0)));
    }
  }
  at::Tensor forward(const at::Tensor& x) { return blocks->forward(x); }
  torch::nn::Sequential blocks;
};
TORCH_MODULE(Model);

// A block whose attention is saved.
struct SavedAttention {
  at::Tensor forward(at::Tensor x) {
    x = norm->forward(x);
    {
      ac2::SaveScope save;
      x = attention->forward(x);
    }
    return x;
  }

  Block norm{8};
  Block attention{8};
};

class GuideModulesTest : public CleanTest {
 protected:
  at::Tensor x = sample({4, 8});
};

TEST_F(GuideModulesTest, OneModule) {
  auto block = ac2::checkpoint_wrapper(Block(256));
  block->forward(sample({2, 256})).sum().backward();
  EXPECT_EQ(block->regions, 1);
}

TEST_F(GuideModulesTest, AMemberThatIsSoFromTheStart) {
  ac2::Checkpointed<Block> block(256);
  block->forward(sample({2, 256})).sum().backward();
  EXPECT_EQ(block->regions, 1);
}

TEST_F(GuideModulesTest, ASequentialInSegments) {
  torch::nn::Sequential layers;
  for (int i = 0; i < 4; ++i) layers->push_back(Block(8));
  const int64_t k = 2;
  EXPECT_TRUE(same_bits(ac2::checkpoint_sequential(layers, k, x), layers->forward(x)));
  EXPECT_TRUE(same_bits(ac2::checkpoint_sequential(layers, x), layers->forward(x)));
}

TEST_F(GuideModulesTest, PartsOfAFinishedModel) {
  Model model;
  const auto names = ac2::apply_checkpointing(model, {.modules = {"blocks.*"}});
  EXPECT_EQ(names, (std::vector<std::string>{"blocks.0", "blocks.1", "blocks.2"}));
  EXPECT_EQ(ac2::find_checkpointing(*model, "blocks.0")->last_trace(), nullptr);
}

TEST_F(GuideModulesTest, SingleCalls) {
  PolicyScope scope("recompute_all");
  at::Tensor y;
  {
    ac2::RecomputeScope recompute;
    y = x.sin().cos();
  }
  {
    ac2::SaveScope save;
    y = y.sin().cos();
  }
  y.sum().backward();
  EXPECT_EQ(scope.trace()->stats().recomputed_ops, 2);  // sin and cos of the first block
}

TEST_F(GuideModulesTest, Options) {
  ac2::CheckpointOptions options;
  options.keep_output = true;
  options.off_in_eval = true;
  options.off_under_no_grad = true;
  options.offload_inputs = true;
  auto block = ac2::checkpoint_wrapper(Block(256), ac2::policies::save_compute_intensive(), options);

  const at::Tensor y = block->forward(sample({2, 256}));
  const int64_t held = block->checkpointing().last_trace()->stats().saved_bytes;
  block->checkpointing().set_on(false);

  EXPECT_GT(held, 0);
  EXPECT_FALSE(block->checkpointing().is_on());
  y.sum().backward();
}

TEST_F(GuideModulesTest, AWholeModel) {
  Model model;
  using ac2::ModuleSelector;
  ac2::apply_checkpointing(model, {.modules = {ModuleSelector("blocks.*").every(2)}});
  ac2::apply_checkpointing(model, {.modules = {ModuleSelector::type<torch::nn::TransformerEncoderLayer>()},
                                   .policy = ac2::policies::recompute_ops({"aten::gelu"})});
  ac2::remove_checkpointing(*model);

  EXPECT_EQ(ac2::find_checkpointing(*model, "blocks.0"), nullptr);
}

TEST_F(GuideModulesTest, WhatCannotBeReachedAndWhatToDo) {
  Block block(8);
  expect_error([&] { ac2::apply_checkpointing(block, {.modules = {"fc1"}}); }, {"fc1"});
  at::Tensor y = block->fc1->forward(x);

  using ac2::Checkpointed;
  using M = BlockImpl;
  torch::nn::ModuleList list(Checkpointed<Block>(8));
  const int i = 0;
  y = list->at<Checkpointed<M>>(i).forward(x);
  EXPECT_EQ(list->at<Checkpointed<M>>(i).regions, 1);

  Model model;
  EXPECT_TRUE(same_bits(checkpoint_wrapper(model)->forward(x.view({1, 4, 8})), model->forward(x.view({1, 4, 8}))));
}

TEST_F(GuideModulesTest, SingleOpsByPlace) {
  SavedAttention model;
  PolicyScope scope("recompute_all");
  model.forward(x).sum().backward();
  EXPECT_EQ(model.attention->regions, 1);
  EXPECT_GT(scope.trace()->stats().recomputed_ops, 0);
}

TEST_F(GuideModulesTest, ATimelineOfACheckpointedModule) {
  ac2::CheckpointOptions options;
  options.timeline = true;
  auto block = checkpoint_wrapper(Block(8), "recompute_all", options);
  block->forward(x).sum().backward();
  const auto trace = block->checkpointing().last_trace();
  EXPECT_NE(ac2::explain(*trace).find("ops replayed"), std::string::npos);
}

}  // namespace
}  // namespace ac2::test
