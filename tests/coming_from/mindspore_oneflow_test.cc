// Entries of docs/coming_from.md: MindSpore, PaddlePaddle and OneFlow.
#include <torch/csrc/api/include/torch/ordered_dict.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>
#include <utility>

#include "policies/policies.h"
#include "tests/coming_from/block.h"
#include "tests/coming_from/entry.h"

namespace ac2::test {
namespace {

using MindSporeTest = EntryTest;
using OneFlowTest = EntryTest;
using PaddleTest = EntryTest;

torch::nn::Sequential two_layers() {
  torch::nn::Sequential model;
  model->push_back("layer1", Block(4));
  model->push_back("layer2", Block(4));
  return model;
}

BlockImpl& layer(torch::nn::Sequential& model, size_t i) {
  return *model->ptr(i)->as<BlockImpl>();
}

TEST_F(MindSporeTest, ACellIsRecomputedButItsOutput) {
  torch::nn::Sequential model = two_layers();
  ac2::CheckpointOptions options;
  options.keep_output = true;
  expect_same(
      [&] {
        ac2::apply_checkpointing(model, {.modules = {"layer1"}, .options = options});
        return model->forward(x);
      },
      [&] {
        ac2::remove_checkpointing(*model);
        return model->forward(x);
      },
      leaves_of(*model, x));
  EXPECT_EQ(layer(model, 0).regions, 1);
  EXPECT_EQ(layer(model, 1).regions, 0);
}

TEST_F(MindSporeTest, ABlockIsRecomputedWithItsOutputOrWithoutIt) {
  for (const bool output_recompute : {false, true}) {
    Block block(4);
    ac2::CheckpointOptions options;
    options.keep_output = !output_recompute;
    auto recomputed = ac2::checkpoint_wrapper(block, "recompute_all", options);
    expect_same_and_replays(
        [&] {
          PolicyScope scope("recompute_all");
          watch(scope);
          return wave(recomputed->forward(x));
        },
        [&] { return wave(block->forward(x)); }, leaves_of(*block, x), output_recompute ? 4 : 3);
  }
}

TEST_F(MindSporeTest, AnOpIsRecomputedWhereverItIsCalled) {
  const Policy policy = ac2::policies::recompute_ops({"aten::sin"});
  EXPECT_EQ(run_products(policy).backward.recomputed_ops, 1);
}

TEST_F(MindSporeTest, OneCallIsRecomputed) {
  expect_same_and_replays(
      [&] {
        PolicyScope scope(CheckpointPolicy::PREFER_SAVE);
        watch(scope);
        at::Tensor h = x.mm(w);
        {
          ac2::RecomputeScope recompute;
          h = h.sin();
        }
        return h.mm(w).cos();
      },
      [&] { return products(x, w); }, {x, w}, 1);
}

TEST_F(MindSporeTest, OneCallOfARecomputedCellIsSaved) {
  expect_same_and_replays(
      [&] {
        PolicyScope scope("recompute_all");
        watch(scope);
        at::Tensor h;
        {
          ac2::SaveScope save;
          h = x.mm(w);
        }
        return h.sin().mm(w).cos();
      },
      [&] { return products(x, w); }, {x, w}, 2);
}

TEST_F(MindSporeTest, OffloadedCellsSaveWhereTheyAreOnTheCpu) {
  torch::nn::Sequential model = two_layers();
  ac2::apply_checkpointing(model, {.modules = {"layer1"}, .policy = ac2::CheckpointPolicy::MUST_CPU_OFFLOAD});
  const at::Tensor y = model->forward(x);
  ac2::Checkpointing* checkpointing = ac2::find_checkpointing(*model, "layer1");
  ASSERT_NE(checkpointing, nullptr);
  const Tensors gradients = gradients_of({y}, leaves_of(*model, x));
  EXPECT_EQ(checkpointing->last_trace()->stats().recomputed_ops, 0);
  ac2::remove_checkpointing(*model);
  expect_same_bits(gradients, gradients_of({model->forward(x)}, leaves_of(*model, x)), "gradient");
}

// Of a model of two layers, which are called by their type and known by their parameters.
int64_t recomputed_ops_of(torch::nn::Sequential& model, const at::Tensor& x, const Policy& policy) {
  std::shared_ptr<const Trace> trace;
  at::Tensor y;
  {
    PolicyScope scope(policy);
    y = model->forward(x);
    trace = scope.trace();
  }
  gradients_of({y}, leaves_of(*model, x));
  return trace->stats().recomputed_ops;
}

TEST_F(MindSporeTest, OpsOfCellsAreRecomputedByTheirNames) {
  torch::nn::Sequential model = two_layers();
  const torch::OrderedDict<std::string, at::Tensor> parameters = model->named_parameters();
  const ac2::CheckpointPolicy RECOMPUTE = ac2::CheckpointPolicy::PREFER_RECOMPUTE;
  const Policy policy = ac2::policies::by_module({{"layer1 :: aten.sin", RECOMPUTE}, {"**", true}}, parameters);
  EXPECT_EQ(recomputed_ops_of(model, x, policy), 1);
}

TEST_F(MindSporeTest, OpsAreRecomputedInEachCellThatAPatternMatches) {
  torch::nn::Sequential model = two_layers();
  const torch::OrderedDict<std::string, at::Tensor> parameters = model->named_parameters();
  const Policy policy = ac2::policies::by_module(
      {{"layer* :: aten.sin", ac2::CheckpointPolicy::PREFER_RECOMPUTE}, {"**", true}}, parameters);
  EXPECT_EQ(recomputed_ops_of(model, x, policy), 2);
}

TEST_F(PaddleTest, AFunctionIsRecomputedAndDrawsTheSame) {
  const auto function = [](const at::Tensor& t) { return wave(at::dropout(t, 0.5, /*train=*/true)); };
  expect_same([&] { return ac2::apply_ac_policy_fn(function, "recompute_all", x); }, [&] { return function(x); }, {x});
}

TEST_F(PaddleTest, SegmentsAreRecomputed) {
  torch::nn::Sequential model = two_layers();
  expect_same([&] { return ac2::checkpoint_sequential(model, 2, x); }, [&] { return model->forward(x); },
              leaves_of(*model, x));
}

TEST_F(PaddleTest, ArgumentsAreOffloaded) {
  const auto function = [](const at::Tensor& t) { return wave(t); };
  const at::Tensor h = x * 1;
  expect_same(
      [&] {
        PolicyScope scope("recompute_all");
        ac2::tag_with_policy(h, ac2::CheckpointPolicy::MUST_CPU_OFFLOAD);
        return function(h);
      },
      [&] { return function(h); }, {x});
}

TEST_F(PaddleTest, LayersAreLeftOut) {
  torch::nn::Sequential model = two_layers();
  ac2::apply_checkpointing(model, {.modules = {"layer1"}});
  model->forward(x);
  EXPECT_EQ(layer(model, 0).regions, 1);
  EXPECT_EQ(layer(model, 1).regions, 0);
}

TEST_F(PaddleTest, OnePartOfALayerIsRecomputed) {
  torch::nn::Sequential model = two_layers();
  const torch::OrderedDict<std::string, at::Tensor> parameters = model->named_parameters();
  const ac2::CheckpointPolicy RECOMPUTE = ac2::CheckpointPolicy::PREFER_RECOMPUTE;
  const Policy policy = ac2::policies::by_module({{"**.up", RECOMPUTE}, {"**", true}}, parameters);
  // An op that takes no parameter belongs to the module around that of the last op that took one.
  EXPECT_EQ(recomputed_ops_of(model, x, policy), 2);
}

TEST_F(PaddleTest, OpsOfAListAreNotRecomputed) {
  const Policy policy = ac2::policies::save_ops({"aten::mm", "aten::_scaled_dot_product_*"});
  EXPECT_EQ(run_products(policy).backward.recomputed_ops, 1);
}

TEST_F(PaddleTest, EveryOtherOpOfAListIsNotRecomputed) {
  const Policy policy = ac2::policies::every_nth(2, {"aten::mm"});
  EXPECT_EQ(run_products(policy).backward.recomputed_ops, 2);
}

TEST_F(PaddleTest, NamedTensorsAreKept) {
  const Policy policy = ac2::policies::save_only_these_names({"checkpoint"});
  expect_same_and_replays(
      [&] {
        PolicyScope scope(policy);
        watch(scope);
        at::Tensor h = x.mm(w);
        h = ac2::name_tensor(h, "checkpoint");
        return h.sin().mm(w).cos();
      },
      [&] { return products(x, w); }, {x, w}, 2);
}

TEST_F(OneFlowTest, AModuleOfTheModelIsSwitchedOn) {
  torch::nn::Sequential model = two_layers();
  expect_same(
      [&] {
        ac2::apply_checkpointing(model, {.modules = {"layer1"}});
        return model->forward(x);
      },
      [&] {
        ac2::remove_checkpointing(*model);
        return model->forward(x);
      },
      leaves_of(*model, x));
  EXPECT_EQ(layer(model, 0).regions, 1);
}

TEST_F(OneFlowTest, AMemberHasAFlag) {
  ac2::Checkpointed<Block> linear1(4);
  expect_same(
      [&] {
        linear1->checkpointing().set_on(true);
        return linear1->forward(x);
      },
      [&] {
        linear1->checkpointing().set_on(false);
        EXPECT_FALSE(linear1->checkpointing().is_on());
        return linear1->forward(x);
      },
      leaves_of(*linear1, x));
  EXPECT_EQ(linear1->regions, 1);
}

TEST_F(OneFlowTest, AFunctionIsCheckpointedAndDrawsTheSame) {
  const auto function = [](const at::Tensor& t) { return wave(at::dropout(t, 0.5, /*train=*/true)); };
  expect_same([&] { return ac2::apply_ac_policy_fn(function, "recompute_all", x); }, [&] { return function(x); }, {x});
}

TEST_F(OneFlowTest, RegionsShareABudget) {
  // Of seven tensors that backward wants. The last regions hold three that they took from those before, and a replay
  // adds one: with less than four, whether there is room would depend on how long the ops took.
  const int64_t bytes = 4 * kTensorBytes;
  ac2::MemoryBudget budget(bytes);
  expect_same(
      [&] {
        at::Tensor y = x;
        for (int i = 0; i < 4; ++i) {
          ac2::PolicyScope scope({.memory_budget = budget});
          at::Tensor next = wave(y);
          EXPECT_LE(budget.held_bytes(), budget.bytes());
          y = next;
        }
        return y;
      },
      [&] { return wave(wave(wave(wave(x)))); }, {x});
}

}  // namespace
}  // namespace ac2::test
