// Entries of docs/coming_from.md: fairscale and DeepSpeed.
#include <ATen/CPUGeneratorImpl.h>
#include <torch/library.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "policies/policies.h"
#include "tests/coming_from/entry.h"

namespace ac2::test {
namespace {

using FairscaleTest = EntryTest;
using DeepSpeedTest = EntryTest;

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int64_t dim)
      : up(register_module("up", torch::nn::Linear(dim, dim))),
        norm(register_module("norm", torch::nn::BatchNorm1d(dim))) {}
  at::Tensor forward(const at::Tensor& x) {
    ++calls;
    regions += is_checkpoint_enabled() ? 1 : 0;
    return norm->forward(up->forward(x)).sin();
  }
  torch::nn::Linear up;
  torch::nn::BatchNorm1d norm;
  int calls = 0, regions = 0;
};
TORCH_MODULE(Block);

// The answer of is_recomputing() in the op below.
std::vector<bool> seen;

TORCH_LIBRARY(ac2_coming_from_test, m) {
  m.def("looking(Tensor x) -> Tensor");
}

TORCH_LIBRARY_IMPL(ac2_coming_from_test, CPU, m) {
  m.impl("looking", [](const at::Tensor& x) {
    seen.push_back(ac2::is_recomputing());
    return x.sin();
  });
}

at::Tensor looking(const at::Tensor& x) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("ac2_coming_from_test::looking", "")
      .typed<at::Tensor(const at::Tensor&)>()
      .call(x);
}

// Takes a keyword's worth and gives back what is no tensor.
struct PairImpl : torch::nn::Module {
  std::tuple<at::Tensor, int> forward(const at::Tensor& x, double scale) { return {wave(x * scale), 7}; }
};
TORCH_MODULE(Pair);

TEST_F(FairscaleTest, AModuleIsWrapped) {
  Block module(4);
  auto checkpointed_module = ac2::checkpoint_wrapper(module);
  expect_same([&] { return checkpointed_module->forward(x); }, [&] { return module->forward(x); },
              leaves_of(*module, x));
  EXPECT_GT(checkpointed_module->checkpointing().last_trace()->stats().recomputed_ops, 0);
}

TEST_F(FairscaleTest, SeveralArgumentsAndResultsThatAreNoTensors) {
  auto checkpointed_module = ac2::checkpoint_wrapper(Pair());
  expect_same(
      [&] {
        auto [a, b] = checkpointed_module->forward(x, 3.0);
        EXPECT_EQ(b, 7);
        return a;
      },
      [&] { return wave(x * 3.0); }, {x});
}

TEST_F(FairscaleTest, OffloadedInputsAreSavedWhereTheyAreOnTheCpu) {
  Block module(4);
  ac2::CheckpointOptions options;
  options.offload_inputs = true;
  auto checkpointed_module = ac2::checkpoint_wrapper(module, "recompute_all", options);
  expect_same([&] { return checkpointed_module->forward(x); }, [&] { return module->forward(x); },
              leaves_of(*module, x));
  EXPECT_EQ(checkpointed_module->checkpointing().last_trace()->stats().offloaded_bytes, 0);
}

TEST_F(FairscaleTest, BatchNormChangesItsStatisticsOnceAndForwardRunsOnce) {
  auto checkpointed_module = ac2::checkpoint_wrapper(Block(4));
  checkpointed_module->forward(x).sum().backward();
  EXPECT_EQ(checkpointed_module->norm->num_batches_tracked.item<int64_t>(), 1);
  EXPECT_EQ(checkpointed_module->calls, 1);
}

TEST_F(FairscaleTest, WithoutGradientsThereIsNoRegion) {
  ac2::CheckpointOptions options;
  options.off_under_no_grad = true;
  auto checkpointed_module = ac2::checkpoint_wrapper(Block(4), "recompute_all", options);
  {
    const at::NoGradGuard no_grad;
    checkpointed_module->forward(x);
  }
  EXPECT_EQ(checkpointed_module->regions, 0);
  checkpointed_module->forward(x);
  EXPECT_EQ(checkpointed_module->regions, 1);
}

TEST_F(FairscaleTest, CheckpointingIsDisabledInABlock) {
  auto checkpointed_module = ac2::checkpoint_wrapper(Block(4));
  {
    ac2::DisableCheckpointing off;
    checkpointed_module->forward(x);
  }
  EXPECT_EQ(checkpointed_module->regions, 0);
}

TEST_F(FairscaleTest, TellsWhetherItIsRecordingOrRecomputing) {
  EXPECT_FALSE(ac2::is_checkpoint_enabled());
  seen.clear();
  at::Tensor y;
  {
    PolicyScope scope("recompute_all");
    EXPECT_TRUE(is_checkpoint_enabled());
    EXPECT_FALSE(ac2::is_recomputing());
    y = x * looking(constant({4, 4}));
  }
  gradient_of(y, x);
  EXPECT_EQ(seen, (std::vector<bool>{false, true}));
}

TEST_F(DeepSpeedTest, AFunctionIsCheckpointed) {
  int calls = 0;
  const auto function = [&](const at::Tensor& a, const at::Tensor& b) {
    ++calls;
    return products(a, b);
  };
  expect_same([&] { return ac2::apply_ac_policy_fn(function, "recompute_all", x, w); }, [&] { return products(x, w); },
              {x, w});
  EXPECT_EQ(calls, 1);
}

TEST_F(DeepSpeedTest, AnInputIsTaggedToBeOffloaded) {
  expect_same_and_replays(
      [&] {
        ac2::PolicyScope scope("recompute_all");
        watch(scope);
        const at::Tensor input = x.sin();
        ac2::tag_with_policy(input, ac2::CheckpointPolicy::MUST_CPU_OFFLOAD);
        return wave(input);
      },
      [&] { return wave(x.sin()); }, {x}, 1);
  EXPECT_EQ(trace->stats().offloaded_bytes, 0);
}

TEST_F(DeepSpeedTest, ForwardAndReplaysAreTimed) {
  expect_same(
      [&] {
        ac2::PolicyScope scope("recompute_all", {.timeline = true});
        watch(scope);
        return products(x, w);
      },
      [&] { return products(x, w); }, {x, w});
  const std::string json = ac2::to_chrome_trace(*trace);
  EXPECT_NE(json.find(R"("cat":"replay")"), std::string::npos);
}

TEST_F(DeepSpeedTest, RandomOpsReplayOnTheStateOfTheGeneratorTheyDrewFrom) {
  const uint64_t seed = 2718;
  Tensors states;
  const auto fn = [&] {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    at::Tensor y = wave(x * at::rand({4, 4}, generator));
    states.push_back(generator.get_state());
    return y;
  };
  const Stats stats = expect_same(
      [&] {
        ac2::PolicyScope scope("recompute_all");
        watch(scope);
        return fn();
      },
      fn, {x});
  EXPECT_TRUE(same_bits(states[0], states[1]));
  EXPECT_EQ(stats.forward.saved_bytes, kTensorBytes);  // x, and no random numbers
  EXPECT_GT(stats.backward.recomputed_ops, 0);
}

TEST_F(DeepSpeedTest, AForwardWithoutBackwardLeavesNothing) {
  {
    PolicyScope scope("recompute_all");
    products(x, w);
  }
  EXPECT_EQ(ac2::live_node_count(), 0);
}

}  // namespace
}  // namespace ac2::test
