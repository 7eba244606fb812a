// Entries of docs/coming_from.md: torch.utils.checkpoint, saved-tensor hooks, memory budgets.
#include <torch/nn/modules/linear.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "policies/policies.h"
#include "tests/coming_from/block.h"
#include "tests/coming_from/entry.h"

namespace ac2::test {
namespace {

using PytorchTest = EntryTest;

torch::nn::Sequential four_blocks() {
  return torch::nn::Sequential(Block(4), Block(4), Block(4), Block(4));
}

TEST_F(PytorchTest, CheckpointRunsTheFunctionOnce) {
  int calls = 0;
  const auto fn = [&](const at::Tensor& t) {
    ++calls;
    return wave(t);
  };
  expect_same(
      [&] {
        at::Tensor y = ac2::checkpoint(fn, x);
        EXPECT_EQ(live_node_count(), 1);  // sin's; backward does not want what cos computed
        return y;
      },
      [&] { return wave(x); }, {x});
  EXPECT_EQ(calls, 1);
}

TEST_F(PytorchTest, CheckpointTakesAndReturnsAnything) {
  const auto fn = [](const at::Tensor& t, double scale) { return std::pair(wave(t * scale), 7); };
  expect_same(
      [&] {
        auto [y, count] = ac2::checkpoint(fn, x, 2.0);
        EXPECT_EQ(count, 7);
        return y;
      },
      [&] { return wave(x * 2.0); }, {x});
}

TEST_F(PytorchTest, WhatNestedCheckpointsAreForABudgetDoes) {
  const int64_t bytes = 4 * kTensorBytes;
  const Stats stats = expect_same(
      [&] {
        ac2::PolicyScope scope({.memory_budget = bytes});
        watch(scope);
        return sines(x, 20);
      },
      [&] { return sines(x, 20); }, {x});
  EXPECT_LE(stats.forward.saved_bytes, bytes + kTensorBytes);  // x is the program's own
  EXPECT_GE(stats.backward.recomputed_ops, 15);
}

TEST_F(PytorchTest, RandomNumbersAreDrawnAgainFromTheStateThatTheOpFound) {
  const auto fn = [&] { return wave(at::dropout(x, 0.5, /*train=*/true)) * at::rand({4, 4}); };
  const Stats stats = expect_same(
      [&] {
        ac2::PolicyScope scope("recompute_all");
        watch(scope);
        return fn();
      },
      fn, {x});
  EXPECT_GT(stats.backward.recomputed_ops, 0);
  EXPECT_EQ(stats.forward.saved_bytes, kTensorBytes);  // x alone: no mask, no random numbers
}

TEST_F(PytorchTest, VerifyComparesEachReplayWithForwardBitForBit) {
  expect_same_and_replays(
      [&] {
        ac2::PolicyScope scope("recompute_all", {.verify = true});
        watch(scope);
        return products(x, w);
      },
      [&] { return products(x, w); }, {x, w}, 3);
}

TEST_F(PytorchTest, WithoutVerifyNothingIsCompared) {
  ac2::PolicyScope scope("recompute_all", {.verify = false});
  at::Tensor s = x.sin();
  s.mutable_data_ptr<float>()[0] = 5;
  EXPECT_NO_THROW(s.cos());
}

TEST_F(PytorchTest, ATimelineTellsWhichOpsRanAndRanAgain) {
  expect_same(
      [&] {
        ac2::PolicyScope scope("recompute_all", {.timeline = true});
        watch(scope);
        return products(x, w);
      },
      [&] { return products(x, w); }, {x, w});
  const std::string text = ac2::explain(*trace);
  EXPECT_NE(text.find("Recomputed: 3 ops"), std::string::npos) << text;
}

TEST_F(PytorchTest, AnEnvironmentVariableVerifiesEveryRegionAndTheErrorNamesTheOp) {
  setenv("AC2_VERIFY", "1", /*overwrite=*/1);
  std::string message;
  {
    ac2::PolicyScope scope("recompute_all");
    at::Tensor s = x.sin();
    s.mutable_data_ptr<float>()[0] = 5;
    try {
      s.cos();
    } catch (const c10::Error& error) {
      message = error.what_without_backtrace();
    }
  }
  setenv("AC2_VERIFY", "0", 1);
  EXPECT_NE(message.find("the result of aten::sin (op 0 of its region)"), std::string::npos) << message;
}

TEST_F(PytorchTest, OnlyWhatIsNeededIsReplayed) {
  const auto fn = [&] {
    at::Tensor s = x.sin();
    at::Tensor unused = s.tan().exp();
    return s.cos() + 1;  // nothing needs what + computes
  };
  const Stats stats = expect_same(
      [&] {
        ac2::PolicyScope scope("recompute_all");
        watch(scope);
        return fn();
      },
      fn, {x});
  EXPECT_EQ(trace->stats().recomputed_ops, 1);
  EXPECT_EQ(stats.forward.saved_bytes, kTensorBytes);
}

TEST_F(PytorchTest, ASequentialInSegmentsRunsAllButTheLastInRegions) {
  torch::nn::Sequential model = four_blocks();
  expect_same([&] { return ac2::checkpoint_sequential(model, 2, x); }, [&] { return model->forward(x); },
              leaves_of(*model, x));
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(model->at<BlockImpl>(i).regions, i < 2 ? 1 : 0) << i;
}

TEST_F(PytorchTest, AModuleIsWrapped) {
  Block block(4);
  auto wrapped = ac2::checkpoint_wrapper(block);
  expect_same([&] { return wrapped->forward(x); }, [&] { return block->forward(x); }, leaves_of(*block, x));
  EXPECT_EQ(wrapped->checkpointing().last_trace()->stats().recomputed_ops, 2);
}

TEST_F(PytorchTest, ModulesOfATypeAreChosen) {
  torch::nn::Sequential model = four_blocks();
  expect_same(
      [&] {
        ac2::apply_checkpointing(model, {.modules = {ac2::ModuleSelector::type<Block>()}});
        return model->forward(x);
      },
      [&] {
        remove_checkpointing(*model);
        return model->forward(x);
      },
      leaves_of(*model, x));
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(model->at<BlockImpl>(i).regions, 1) << i;
}

TEST_F(PytorchTest, AnOffloadedModuleSavesWhereItIsOnTheCpu) {
  Block block(4);
  auto wrapped = ac2::checkpoint_wrapper(block, ac2::CheckpointPolicy::MUST_CPU_OFFLOAD);
  expect_same([&] { return wrapped->forward(x); }, [&] { return block->forward(x); }, leaves_of(*block, x));
  EXPECT_EQ(wrapped->checkpointing().last_trace()->stats().recomputed_ops, 0);
}

TEST_F(PytorchTest, HooksPackEachNeededResultOnce) {
  int packs = 0, unpacks = 0;
  const auto pack = [&](const at::Tensor& t) {
    ++packs;
    return c10::IValue(t.clone());
  };
  const auto unpack = [&](const c10::IValue& packed) {
    ++unpacks;
    return packed.toTensor();
  };
  expect_same_and_replays(
      [&] {
        ac2::PolicyScope scope(ac2::Policy::constant(ac2::SaveWithHooks{pack, unpack}));
        watch(scope);
        return wave(x);
      },
      [&] { return wave(x); }, {x}, 0);
  EXPECT_EQ(packs, 1);  // sin(x), and not x
  EXPECT_EQ(unpacks, 1);
}

TEST_F(PytorchTest, OffloadingSavesWhereItIsOnTheCpu) {
  const Stats stats = expect_same(
      [&] {
        ac2::PolicyScope scope(ac2::CheckpointPolicy::MUST_CPU_OFFLOAD);
        watch(scope);
        return wave(x);
      },
      [&] { return wave(x); }, {x});
  EXPECT_EQ(stats.forward.saved_bytes, 2 * kTensorBytes);
  EXPECT_EQ(stats.forward.offloaded_bytes, 0);
  EXPECT_EQ(stats.backward.recomputed_ops, 0);
}

TEST_F(PytorchTest, WhatBackwardNeedsMayBeOverwritten) {
  const Stats stats = expect_same(
      [&] {
        ac2::PolicyScope scope("recompute_all");
        watch(scope);
        at::Tensor b = x.clone();
        at::Tensor y = (b * b).sum();
        b.sin_();
        return y + b.sum();
      },
      [&] {
        at::Tensor b = x.clone();
        at::Tensor y = (b * b).sum();
        return y + b.sin().sum();
      },
      {x});
  EXPECT_EQ(stats.forward.copied_bytes, 0);  // b is computed again
}

TEST_F(PytorchTest, APlanFindsWhatToKeepInSoManyBytes) {
  const auto step = [&] { sines(x, 11).sum().backward(); };
  const int64_t bytes = 5 * kTensorBytes;
  const ac2::Policy policy = ac2::plan(step, bytes);
  const Stats stats = expect_same(
      [&] {
        PolicyScope scope(policy);
        watch(scope);
        return sines(x, 11).sum();
      },
      [&] { return sines(x, 11).sum(); }, {x});
  EXPECT_EQ(stats.backward.recomputed_ops, 5);
  EXPECT_LE(stats.forward.saved_bytes, bytes + kTensorBytes);  // x is the program's own
}

TEST_F(PytorchTest, CostsComeFromShapesAndEveryBudgetHasItsPrice) {
  const auto step = [&] { sines(x, 11).sum(); };
  ac2::StepPlanner planner(step, {.modelled_costs = true});
  double cost = -1;
  for (const int64_t values : {10, 8, 6}) {
    const int64_t bytes = values * kTensorBytes;
    const ac2::PlanSummary summary = planner.plan(bytes).summary();
    EXPECT_LE(summary.peak_bytes, bytes);
    EXPECT_GT(summary.replay_cost, cost);
    cost = summary.replay_cost;
  }
}

}  // namespace
}  // namespace ac2::test
