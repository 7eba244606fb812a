// The code of docs/guide.md, but for its chapter on modules: what stands between the tests' own lines is on the page,
// letter for letter.
#include <gmock/gmock.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ac2/ac2.h"
#include "ac2/testing/run_ranks.h"
#include "policies/policies.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using ::testing::HasSubstr;

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int64_t dim) : up(register_module("up", torch::nn::Linear(dim, dim))) {}
  at::Tensor forward(const at::Tensor& x) { return up->forward(x).sin().cos(); }
  torch::nn::Linear up;
};
TORCH_MODULE(Block);

class GuideTest : public CleanTest {
 protected:
  void SetUp() override {
    CleanTest::SetUp();
    // The guide's programs write a file beside themselves.
    directory_ = std::filesystem::current_path();
    std::filesystem::current_path(::testing::TempDir());
  }
  void TearDown() override {
    std::filesystem::current_path(directory_);
    CleanTest::TearDown();
  }

  // Gradients through a model with names, products, activations and a softmax, under `policy`.
  void expect_exact(const Policy& policy) {
    SCOPED_TRACE(policy.name());
    expect_same_gradients(
        [](const Tensors& inputs) -> Tensors {
          at::Tensor t = name_tensor(inputs[0].mm(inputs[1]) + inputs[0], "attn_out");
          t = name_tensor(at::gelu(t).softmax(1), "scores");
          return {t.mm(inputs[1]).sin() + inputs[0]};
        },
        {x, sample({8, 8})}, policy);
  }

  at::Tensor x = sample({4, 8});

 private:
  std::filesystem::path directory_;
};

TEST_F(GuideTest, ARegionWithinWhatTheMachineHas) {
  ac2::PolicyScope scope;
  const at::Tensor y = x.sin().cos();
  y.sum().backward();
  EXPECT_EQ(scope.trace()->stats().recomputed_ops, 0);
}

TEST_F(GuideTest, AScopeWithoutAPolicy) {
  ac2::PolicyScope scope({.timeline = true});
  x.sin().cos().sum().backward();
  EXPECT_EQ(scope.trace()->stats().recomputed_ops, 0);
  EXPECT_EQ(ac2::whatever_fits().held_bytes(), 0);
}

TEST_F(GuideTest, ABoundOnThePeak) {
  const ac2::MemoryBudget peak = ac2::MemoryBudget::peak(64 << 20);
  const ScopeOptions options{.memory_budget = peak};
  PolicyScope scope(options);
  const at::Tensor y = x.sin().cos();
  y.sum().backward();
  EXPECT_EQ(scope.trace()->stats().recomputed_ops, 0);
}

TEST_F(GuideTest, RanksThatAgree) {
  struct OneRank : ac2::RankGroup {
    void take_largest(at::Tensor& /*numbers*/) override {}  // there is no other
  };
  const auto group = std::make_shared<OneRank>();
  const int64_t bytes = 64 << 20;
  for (const ac2::MemoryBudget& budget : {ac2::whatever_fits(group), ac2::MemoryBudget(bytes, group)}) {
    PolicyScope scope({.memory_budget = budget});
    x.sin().cos().sum().backward();
    EXPECT_EQ(scope.trace()->stats().recomputed_ops, 0);
  }
}

TEST_F(GuideTest, ARegionWithinSoManyBytes) {
  const ScopeOptions options{.memory_budget = int64_t{2} << 30};
  EXPECT_TRUE(options.memory_budget.has_value());
  ac2::PolicyScope scope({.memory_budget = 64 << 20});
  const at::Tensor y = x.sin().cos();
  y.sum().backward();
  EXPECT_EQ(scope.trace()->stats().recomputed_ops, 0);
}

TEST_F(GuideTest, AllRegionsWithinSoManyBytes) {
  ac2::MemoryBudget budget(64 << 20);
  at::Tensor y = x;
  for (int i = 0; i < 2; ++i) {
    ac2::PolicyScope scope({.memory_budget = budget});
    y = y.sin().cos();
  }
  const int64_t held = budget.held_bytes();
  EXPECT_GT(held, 0);
}

TEST_F(GuideTest, MoreBytesWhereThereIsNoOtherWay) {
  const ac2::MemoryBudget soft = ac2::MemoryBudget::soft(64 << 20);
  ac2::PolicyScope scope({.memory_budget = soft});
  x.sin().cos().sum().backward();
  EXPECT_EQ(soft.times_over(), 0);
  EXPECT_EQ(soft.most_bytes_over(), 0);
}

TEST_F(GuideTest, DecidesByModule) {
  struct LayerImpl : torch::nn::Module {
    at::Tensor forward(const at::Tensor& input) { return at::gelu(mlp->forward(wo->forward(input))); }
    torch::nn::Linear wo = register_module("wo", torch::nn::Linear(8, 8));
    torch::nn::Linear mlp = register_module("mlp", torch::nn::Linear(8, 8));
  };
  struct ModelImpl : torch::nn::Module {
    LayerImpl& layer(size_t i) { return layers->at<LayerImpl>(i); }
    torch::nn::ModuleList layers =
        register_module("layers", torch::nn::ModuleList(std::make_shared<LayerImpl>(), std::make_shared<LayerImpl>()));
  };
  const auto model = std::make_shared<ModelImpl>();
  const ac2::Policy policy = ac2::policies::by_module(
      {
          {"layers.*.wo", ac2::CheckpointPolicy::MUST_SAVE},
          {"layers.*.mlp :: aten.gelu", ac2::CheckpointPolicy::PREFER_RECOMPUTE},
          {"layers.*.mlp", ac2::forms::narrow(at::kBFloat16)},
      },
      model->named_parameters());
  ac2::PolicyScope scope(policy);
  const at::Tensor y = model->layer(1).forward(model->layer(0).forward(x));
  y.sum().backward();
  EXPECT_EQ(scope.trace()->stats().recomputed_ops, 1);  // the gelu between the layers
}

TEST_F(GuideTest, OneOpThatIsTooLarge) {
  const at::Tensor hidden = torch::randn({16, 8}), vocabulary = torch::randn({32, 8}).requires_grad_();
  const at::Tensor target = torch::arange(16);
  const at::Tensor loss = ac2::in_chunks(
      [&](const at::Tensor& hidden, const at::Tensor& target) {
        return at::cross_entropy_loss(at::linear(hidden, vocabulary), target, {}, at::Reduction::Sum);
      },
      {hidden, target}, {.chunks = 8, .reduce = "sum"});
  loss.backward();
  const at::Tensor mean = ac2::linear_cross_entropy(hidden, vocabulary, target);
  EXPECT_TRUE(at::allclose(mean * 16, loss));
  mean.backward();
}

TEST_F(GuideTest, TwoReadyOnesInChunks) {
  const at::Tensor hidden = torch::randn({16, 8}).requires_grad_(), weight = torch::randn({8, 8});
  const auto mlp = [&](const at::Tensor& tokens) { return at::linear(tokens, weight).relu(); };
  EXPECT_TRUE(at::allclose(ac2::tiled_mlp(mlp, hidden, 4), mlp(hidden)));
  const at::Tensor query = torch::randn({2, 16, 8}), key = torch::randn({2, 16, 8}), value = torch::randn({2, 16, 8});
  EXPECT_TRUE(at::allclose(ac2::query_chunked_attention(query, key, value, {.chunks = 4}),
                           at::scaled_dot_product_attention(query, key, value), 1e-4, 1e-5));
}

TEST_F(GuideTest, AKernelOfYourOwn) {
  const at::Tensor x = torch::randn({16}).contiguous();
  const auto scaled = ac2::replayable("scaled", [](const at::Tensor& x, float by) {
    at::Tensor out = at::empty_like(x);
    const float* in = x.data_ptr<float>();
    std::transform(in, in + x.numel(), out.data_ptr<float>(), [by](float v) { return v * by; });
    return out;
  });
  const at::Tensor y = scaled(x.detach(), 2.0f);
  EXPECT_TRUE(same_bits(y, x * 2));
}

TEST_F(GuideTest, APlanForAStep) {
  const auto step = [&] { x.sin().cos().sum().backward(); };
  const ac2::Plan plan = ac2::plan(step, 64 << 20);
  at::Tensor loss;
  {
    ac2::PolicyScope scope(plan);
    loss = x.sin().cos().sum();
  }
  loss.backward();
}

TEST_F(GuideTest, APlanThatTheNextJobReads) {
  const std::string directory = ::testing::TempDir() + "guide_test";
  std::filesystem::create_directory(directory);
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(directory);
  const auto step = [&] { x.sin().cos().sum().backward(); };
  const ac2::Plan plan = ac2::plan(step, 64 << 20);
  plan.save("plan.json");
  {
    ac2::PolicyScope scope(ac2::Plan::load("plan.json"));
    x.sin().cos().sum().backward();
  }
  std::filesystem::current_path(before);
  std::filesystem::remove_all(directory);
}

TEST_F(GuideTest, SeveralProcesses) {
  const std::vector<std::string> command = {"sh", "-c", "test $WORLD_SIZE = 2"};
  ac2::testing::run_ranks(2, command);
}

TEST_F(GuideTest, WhatABudgetWouldCost) {
  torch::nn::Sequential model(Block(8), Block(8));
  torch::nn::MSELoss criterion;
  const at::Tensor y = constant({4, 8});
  const auto step = [&] { criterion(model->forward(x), y).backward(); };
  ac2::StepPlanner planner(step);
  for (const int64_t mib : {64, 48, 32}) {
    const ac2::PlanSummary summary = planner.plan(mib << 20).summary();
    std::cout << mib << " MiB: " << summary.replay_cost / summary.forward_cost << " of a forward again\n";
  }

  const int64_t bytes = 1 << 20;
  EXPECT_EQ(planner.plan(bytes).summary().replayed_ops, 0);
  EXPECT_LE(planner.smallest().summary().peak_bytes, bytes);
  const auto keeps = [](const StepPlanner::Op&) { return false; };
  EXPECT_GT(planner.summarize(keeps).replayed_ops, 0);
  EXPECT_EQ(planner.budget(bytes).forward_cost, planner.summarize(keeps).forward_cost);
}

TEST_F(GuideTest, WhatAWholeStepWouldPeakAt) {
  const at::Tensor x = sample({1 << 12});
  const auto step = [&] { x.sin().cos().tanh().sum().backward(); };
  ac2::StepPlanner planner(step, {.step_peak_on = at::kCPU});
  const ac2::PlanSummary summary = planner.smallest().summary();
  EXPECT_GT(summary.step_peak_bytes, summary.peak_bytes);
}

TEST_F(GuideTest, WhatABudgetWouldCostWithoutData) {
  const at::Tensor without_data = at::empty({1 << 20, 1 << 10}, at::device(at::kMeta)).requires_grad_();
  const auto step = [&] { without_data.sin().cos().sum().backward(); };
  ac2::StepPlanner planner(step);
  EXPECT_GT(planner.smallest().summary().peak_bytes, 0);
}

TEST_F(GuideTest, APlanWithForms) {
  const auto step = [&] { x.sin().cos().tanh().exp().sum().backward(); };
  EXPECT_THROW(
      ac2::plan(step, 8LL << 30, {.modelled_costs = true, .forms = {ac2::forms::host_memory(), ac2::forms::one_bit()}}),
      c10::Error);  // x is on the CPU
}

TEST_F(GuideTest, APlanThatPacks) {
  const at::Tensor without_data = at::empty({1 << 20, 1 << 10}, at::device(at::kMeta)).requires_grad_();
  const auto step = [&] { without_data.sin().cos().tanh().exp().sum().backward(); };
  const ac2::Policy policy = ac2::plan(step, 8LL << 30, {.forms = {ac2::forms::quantized(8)}});
  ac2::StepPlanner planner(step, {.forms = {ac2::forms::quantized(8)}});
  const ac2::PlanSummary summary = planner.plan(64LL << 30).summary();
  EXPECT_TRUE(summary.uses.empty());
}

TEST_F(GuideTest, Strategies) {
  using namespace ac2::policies;
  const Policy a = dots_saveable();
  const Policy b = save_only_these_names({"attn_out"});
  for (const Policy& policy : std::vector<Policy>{
           memory(),
           speed(),
           by_size(1 << 20),
           every_nth(4),
           every_nth(2, {"aten::mm", "aten::addmm"}),
           save_ops({"aten::*mm*"}),
           recompute_ops({"aten::gelu", "aten::*norm*"}),
           dots_saveable(),
           dots_with_no_batch_dims_saveable(),
           everything_saveable(),
           nothing_saveable(),
           per_op_override(speed(), {{"aten::bmm", ac2::CheckpointPolicy::MUST_RECOMPUTE}}),
           first_of({by_size(4096), recompute_ops({"aten::gelu"}), speed()}),
           save_from_both_policies(a, b),
           policy_by_name("speed"),
           Policy("speed"),
       }) {
    expect_exact(policy);
  }
}

TEST_F(GuideTest, ListsOfOps) {
  using namespace ac2::policies;
  EXPECT_LT(compute_intensive_ops().size(), slow_ops().size());
}

TEST_F(GuideTest, APolicyByItsName) {
  ac2::PolicyScope scope("speed");
  const at::Tensor y = x.sin().cos();
  y.sum().backward();
  EXPECT_EQ(scope.trace()->stats().recomputed_ops, 1);
}

TEST_F(GuideTest, OptionsAlone) {
  ac2::PolicyScope scope("recompute_all", {.verify = true});
  const at::Tensor y = x.sin().cos();
  y.sum().backward();
  EXPECT_EQ(scope.trace()->stats().recomputed_ops, 1);
}

TEST_F(GuideTest, ADecisionForAllOps) {
  ac2::PolicyScope scope(ac2::CheckpointPolicy::PREFER_SAVE);
  const at::Tensor y = x.sin().cos();
  y.sum().backward();
  EXPECT_EQ(scope.trace()->stats().recomputed_ops, 0);
}

TEST_F(GuideTest, InAnotherForm) {
  using namespace ac2::policies;
  expect_exact(offload_ops({"aten::mm", "aten::addmm"}));
  expect_exact(quantize_ops({"aten::bernoulli_", "aten::div_", "aten::gt"}, 1));
  for (const Policy& policy :
       {quantize_ops({"aten::*"}, 8), quantize_ops({"aten::*"}, 4), narrow_ops({"aten::gelu"}, at::kBFloat16),
        narrow_ops({"aten::gelu"}, at::kFloat8_e4m3fn)}) {
    PolicyScope scope(policy);
    at::gelu(x.sin()).cos().sum().backward();
  }
}

TEST_F(GuideTest, AFormOfYourOwn) {
  const auto pack = [](const at::Tensor& tensor) { return c10::IValue(tensor.to(at::kDouble)); };
  const auto unpack = [](const c10::IValue& packed) { return packed.toTensor().to(at::kFloat); };
  PolicyScope scope([&](const OpContext&) -> PolicyDecision { return SaveWithHooks{pack, unpack}; });
  const at::Tensor y = x.sin().cos();
  y.sum().backward();
  EXPECT_EQ(scope.trace()->stats().recomputed_ops, 0);
}

TEST_F(GuideTest, InTheHostsMemory) {
  ac2::PolicyScope scope(ac2::policies::offload_ops({"aten::mm", "aten::addmm"}),
                         {.offload = ac2::OffloadOptions{.min_bytes = 1 << 20,
                                                         .inputs = true,
                                                         .read_ahead_bytes = 512 << 20,
                                                         .in_flight_bytes = 512 << 20,
                                                         .max_pinned_bytes = 32LL << 30}});
  const int64_t offloaded = scope.trace()->stats().offloaded_bytes;

  EXPECT_EQ(offloaded, 0);
  const at::Tensor y = x.mm(sample({8, 8})).sin();
  const std::shared_ptr<const Trace> trace = scope.trace();
  EXPECT_EQ(trace->stats().not_offloaded_bytes, 0);
  y.sum().backward();
  release_offload_memory();
  EXPECT_EQ(offload_memory().bytes, 0);
}

TEST_F(GuideTest, InTheHostsMemoryInsteadOfDropped) {
  ac2::PolicyScope scope({.memory_budget = 8LL << 30, .forms = {ac2::forms::host_memory()}});

  x.sin().cos().sum().backward();
  EXPECT_EQ(scope.trace()->stats().offloaded_bytes, 0);
}

TEST_F(GuideTest, CloseEnough) {
  ac2::PolicyScope scope({.memory_budget = 8LL << 30, .forms = {ac2::forms::quantized(8)}});

  x.sin().cos().sum().backward();
  EXPECT_EQ(scope.trace()->stats().packed_values, 0);
}

// Not every machine that runs this has the directory.
TEST_F(GuideTest, MoreThanMemoryHolds) {
  const auto in_scratch = [&](const std::function<void()>& fn) {
    try {
      fn();
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("/scratch"));
    }
  };
  in_scratch([&] {
    const ac2::Policy policy = ac2::policies::spill_to_file("/scratch", {"aten::*"}, {.queue_bytes = 256 << 20});
    expect_exact(policy);
  });
  using namespace ac2::policies;
  in_scratch([&] { expect_exact(spill_to_file("/scratch", {"aten::*"})); });
  expect_exact(spill_to_file(::testing::TempDir(), {"aten::mm", "aten::addmm", "aten::bmm"}));
}

TEST_F(GuideTest, NamesAndPoliciesThatLookAtThem) {
  Block attention(8);
  const auto model = [&](at::Tensor x) {
    x = ac2::name_tensor(attention->forward(x), "attn_out");
    return x.sin();
  };
  ac2::PolicyScope scope(ac2::policies::save_only_these_names({"attn_out"}));
  model(x).sum().backward();
  EXPECT_GT(scope.trace()->stats().recomputed_ops, 0);
}

TEST_F(GuideTest, NamesOfYourOwn) {
  const ac2::Policy policy =
      ac2::policies::speed().with_names([](const ac2::NamedTensor& t) -> std::optional<ac2::PolicyDecision> {
        if (t.name.starts_with("scores")) return ac2::CheckpointPolicy::PREFER_RECOMPUTE;
        return std::nullopt;
      });
  expect_exact(policy);
  const auto fn = [](const NamedTensor&) { return std::optional<PolicyDecision>(CheckpointPolicy::MUST_SAVE); };
  expect_exact(policy.with_names(fn));
}

TEST_F(GuideTest, ATag) {
  PolicyScope scope("must_save_all");
  at::Tensor t = x.sin();
  ac2::tag_with_policy(t, ac2::CheckpointPolicy::MUST_RECOMPUTE);
  t = t.cos();
  t.sum().backward();
  EXPECT_EQ(scope.trace()->stats().recomputed_ops, 1);
}

TEST_F(GuideTest, WhereAmI) {
  EXPECT_FALSE(ac2::is_checkpoint_enabled());
  EXPECT_FALSE(ac2::current_decision("aten::_softmax"));
  PolicyScope scope("recompute_all");
  EXPECT_TRUE(ac2::is_checkpoint_enabled());
  EXPECT_FALSE(ac2::is_recomputing());
  EXPECT_FALSE(ac2::current_decision("aten::_softmax")->saves());
  const std::vector<c10::IValue> inputs = {x, 1, false};
  const std::vector<c10::IValue> outputs = {x};
  EXPECT_FALSE(ac2::current_decision("aten::_softmax", inputs, outputs)->saves());
  {
    ac2::DisableCheckpointing off;
    EXPECT_FALSE(ac2::is_checkpoint_enabled());
  }
}

TEST_F(GuideTest, SeeWhatHappened) {
  Block block(8);
  const auto fn = [](const OpContext& op) { return op.is("aten::addmm"); };
  const Policy policy = ac2::Policy(fn).named("every other block");
  const auto loss = [](const at::Tensor& y) { return y.sum(); };
  at::Tensor y;
  std::shared_ptr<const ac2::Trace> trace;
  {
    ac2::PolicyScope scope(policy, {.timeline = true});
    trace = scope.trace();
    y = block->forward(x);
  }
  loss(y).backward();
  std::cout << ac2::explain(*trace);
  ac2::write_report(*trace, "report.html");

  EXPECT_THAT(ac2::to_chrome_trace(*trace), HasSubstr("aten::sin"));
  EXPECT_THAT(ac2::to_dot(*trace), HasSubstr("every other block"));
  EXPECT_THAT(ac2::explain_held(), HasSubstr("ac2's regions hold"));
  EXPECT_TRUE(std::filesystem::exists("report.html"));
  const PolicyScope scope("recompute_all");
  EXPECT_EQ(scope.trace()->stats().saved_bytes, 0);
}

}  // namespace
}  // namespace ac2::test
