// Plans of whole steps: that what they promise is what happens, to the byte and the op; and what happens off the path.
#include "ac2/plan.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ac2/memory_budget.h"
#include "ac2/testing/counting_allocator.h"
#include "tests/support/regions.h"
#include "tests/support/warnings.h"

namespace ac2::test {
namespace {

constexpr int64_t kElements = 1024;
constexpr int64_t kBytes = kElements * 4;

using Network = std::function<at::Tensor(const Tensors&)>;

at::Tensor mlp(const Tensors& in) {
  at::Tensor x = in[0];
  for (int i = 0; i < 6; ++i) x = at::gelu(at::linear(x, in[1], in[2])).tanh();
  return x;
}

// Blocks as GPT has them: attention and a hidden layer, each added to what comes in.
at::Tensor transformer(const Tensors& in) {
  const int64_t batch = in[0].size(0), time = in[0].size(1), dim = in[0].size(2), heads = 2;
  at::Tensor x = in[0];
  for (int i = 0; i < 4; ++i) {
    const auto qkv = at::linear(at::layer_norm(x, {dim}), in[1])
                         .view({batch, time, 3, heads, dim / heads})
                         .permute({2, 0, 3, 1, 4})
                         .unbind(0);
    const at::Tensor mixed = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0.0, /*is_causal=*/true);
    const at::Tensor y =
        x + at::dropout(at::linear(mixed.transpose(1, 2).reshape({batch, time, dim}), in[2]), 0.1, /*train=*/true);
    x = y + at::linear(at::gelu(at::linear(at::layer_norm(y, {dim}), in[3])), in[4]);
  }
  return x;
}

Tensors mlp_inputs() {
  return {sample({16, 64}), sample({64, 64}), sample({64})};
}

Tensors transformer_inputs() {
  return {sample({2, 16, 32}), sample({96, 32}), sample({32, 32}), sample({128, 32}), sample({32, 128})};
}

StepPlanner::Plan plan_of(const Network& network, const Tensors& inputs, int64_t bytes) {
  return StepPlanner([&] { network(inputs).sum().backward(); }, {.modelled_costs = true}).plan(bytes);
}

class PlanTest : public CleanTest {
 protected:
  // Without gradients, as if plan() had never been called.
  static void forget_gradients(const Tensors& inputs) {
    for (const at::Tensor& input : inputs) input.mutable_grad().reset();
  }

  struct Run {
    TraceStats forward, backward;
    int64_t held_after_forward = 0;
    Tensors gradients;
  };
  // One step under the policy; its scope ends before backward, and what it holds is counted.
  Run run(const Network& network, const Tensors& inputs, const Policy& policy, int64_t bytes) {
    Run run;
    MemoryBudget budget(bytes, /*modelled_costs=*/true);
    std::shared_ptr<const Trace> trace;
    at::manual_seed(1);
    at::Tensor loss;
    {
      PolicyScope scope(policy, {.memory_budget = budget});
      trace = scope.trace();
      loss = network(inputs).sum();
    }
    run.forward = trace->stats();
    run.held_after_forward = budget.held_bytes();
    EXPECT_LE(run.held_after_forward, bytes);
    run.gradients = torch::autograd::grad({loss}, inputs);
    run.backward = trace->stats();
    EXPECT_EQ(budget.held_bytes(), 0);
    return run;
  }

  static Tensors plain_gradients(const Network& network, const Tensors& inputs) {
    at::manual_seed(1);
    return torch::autograd::grad({network(inputs).sum()}, inputs);
  }

  // At budgets between the smallest plan's and all that autograd saves.
  void expect_kept_promises(const Network& network, const Tensors& inputs) {
    const Tensors expected = plain_gradients(network, inputs);
    StepPlanner planner([&] { network(inputs).sum().backward(); }, {.modelled_costs = true});
    forget_gradients(inputs);
    const PlanSummary all = planner.summarize([](const StepPlanner::Op&) { return true; });
    EXPECT_EQ(all.replayed_ops, 0);
    const int64_t least = planner.smallest().summary().peak_bytes;
    ASSERT_LT(2 * least, all.peak_bytes);
    double cost = 0;
    for (int i = 8; i >= 0; --i) {
      const int64_t bytes = least + (all.peak_bytes - least) * i / 8;
      SCOPED_TRACE(bytes);
      const StepPlanner::Plan plan = planner.plan(bytes);
      EXPECT_LE(plan.summary().peak_bytes, bytes);
      EXPECT_GE(plan.summary().replay_cost, cost);
      cost = plan.summary().replay_cost;
      // Exactly as many bytes as the plan says are enough to follow it.
      const Run run = this->run(network, inputs, plan, plan.summary().peak_bytes);
      EXPECT_EQ(run.held_after_forward, plan.summary().forward_bytes);
      EXPECT_EQ(run.backward.recomputed_ops, plan.summary().replayed_ops);
      EXPECT_EQ(run.backward.evicted_values, 0);
      expect_same_bits(run.gradients, expected, "gradients");
    }
  }

  // Of a step that holds eight values besides the results that can be kept or not.
  void expect_smallest_plan_is_enough(const Network& network) {
    const Tensors inputs = {sample({kElements})};
    const Tensors expected = plain_gradients(network, inputs);
    StepPlanner planner([&] { network(inputs).sum().backward(); }, {.modelled_costs = true});
    forget_gradients(inputs);
    const StepPlanner::Plan plan = planner.smallest();
    EXPECT_GE(plan.summary().peak_bytes, 8 * kBytes);
    const Run run = this->run(network, inputs, plan, plan.summary().peak_bytes);
    EXPECT_EQ(run.backward.recomputed_ops, plan.summary().replayed_ops);
    EXPECT_EQ(run.backward.evicted_values, 0);
    expect_same_bits(run.gradients, expected, "gradients");
  }

  testing::CountingAllocator& memory_ = testing::CountingAllocator::install();
};

TEST_F(PlanTest, KeepsItsPromisesOnAChain) {
  expect_kept_promises([](const Tensors& in) { return sines(in[0], 40); }, {sample({kElements})});
}

TEST_F(PlanTest, KeepsItsPromisesOnAChainOfOpsThatSaveDifferently) {
  const auto network = [](const Tensors& in) {
    at::Tensor x = in[0];
    for (int i = 0; i < 12; ++i) x = x.tanh().add(1).sin().mul(2).softmax(-1);
    return x;
  };
  expect_kept_promises(network, {sample({8, 128})});
}

TEST_F(PlanTest, KeepsItsPromisesOnAnMlp) {
  expect_kept_promises(mlp, mlp_inputs());
}

TEST_F(PlanTest, KeepsItsPromisesOnATransformer) {
  expect_kept_promises(transformer, transformer_inputs());
}

TEST_F(PlanTest, KeepsItsPromisesWhereResultsAreOverwritten) {
  const auto network = [](const Tensors& in) {
    at::Tensor x = in[0];
    for (int i = 0; i < 8; ++i) x = at::linear(x, in[1]).relu_().cos().mul(x).clone().add_(1);
    return x;
  };
  expect_kept_promises(network, {sample({16, 32}), sample({32, 32})});
}

TEST_F(PlanTest, KeepsForReplaysWhatNoHookWants) {
  // The product is small and dear, and neither it nor the sum saves anything, for the weight requires no gradient.
  const at::Tensor weight = constant({64, 512});
  const Network network = [weight](const Tensors& in) {
    at::Tensor x = in[0];
    for (int i = 0; i < 4; ++i) {
      const at::Tensor product = at::mm(weight, x);
      x = (product.unsqueeze(0) + in[1].unsqueeze(1)).sin().mean(1).repeat({64, 1}).slice(0, 0, 512);
    }
    return x;
  };
  expect_kept_promises(network, {sample({512, 16}), sample({8, 16})});
}

TEST_F(PlanTest, WhatOnlyBackwardKeepsAliveOfTensorsFromOutsideCounts) {
  const Network network = [](const Tensors& in) {
    at::Tensor x = in[0];
    // No op that could be replayed makes the factors.
    for (int i = 0; i < 12; ++i) x = (x.sin() * at::full({kElements / 2}, 1.5).repeat({2})).tanh().cos();
    return x;
  };
  expect_kept_promises(network, {sample({kElements})});
  const Network constants = [](const Tensors& in) {
    at::Tensor x = in[0];
    for (int i = 0; i < 12; ++i) x = (x.sin() * at::full({kElements}, 1.5)).tanh();
    return x;
  };
  Tensors inputs = {sample({kElements})};
  const StepPlanner::Plan plan = plan_of(constants, inputs, 24 * kBytes);
  forget_gradients(inputs);
  const Run run = this->run(constants, inputs, plan, plan.summary().peak_bytes);
  EXPECT_EQ(run.held_after_forward, plan.summary().forward_bytes);
  EXPECT_EQ(run.backward.recomputed_ops, plan.summary().replayed_ops);
  EXPECT_EQ(run.backward.evicted_values, 0);
}

TEST_F(PlanTest, WhatAGraphKeepsAliveThatDiesBeforeBackwardCounts) {
  expect_smallest_plan_is_enough([](const Tensors& in) {
    const at::Tensor x = sines(in[0], 4);
    at::Tensor branch = at::rrelu(x.repeat({8}), 0.1, 0.3, /*training=*/true);  // keeps its noise
    branch.reset();
    return sines(x, 4);
  });
}

SaveWithHooks clones() {
  return {[](const at::Tensor& t) { return c10::IValue(t.clone()); },
          [](const c10::IValue& packed) { return packed.toTensor(); }};
}

TEST_F(PlanTest, WhatAnUnpackReturnsToAReplayCounts) {
  expect_smallest_plan_is_enough([](const Tensors& in) {
    at::Tensor x = in[0].repeat({8});
    {
      const PolicyScope packs([](const OpContext& op) -> PolicyDecision {
        return op.is("aten::exp") ? PolicyDecision(clones()) : CheckpointPolicy::PREFER_SAVE;
      });
      x = x.exp();
    }
    return sines(x, 3);
  });
}

TEST_F(PlanTest, WhatATagPacksOfATensorFromOutsideCounts) {
  const at::Tensor factor = at::full({8, kElements}, 1.5);
  expect_smallest_plan_is_enough([&](const Tensors& in) {
    at::Tensor x = sines(in[0], 6);
    tag_with_policy(factor, clones());
    x = (x * factor).sum(0);
    return sines(x, 6);
  });
}

TEST_F(PlanTest, OneByteLessThanThePlanSaysIsNotEnough) {
  Tensors inputs = {sample({kElements})};
  const Network network = [](const Tensors& in) { return sines(in[0], 20); };
  const StepPlanner::Plan plan = plan_of(network, inputs, 9 * kBytes);
  EXPECT_EQ(plan.summary().peak_bytes, 9 * kBytes);
  const Run run = this->run(network, inputs, plan, plan.summary().peak_bytes - 1);
  EXPECT_GT(run.backward.evicted_values, 0);
}

TEST_F(PlanTest, HoldsItsBytesByTheCountOfTheAllocator) {
  at::Tensor x = sample({kElements});
  for (const int64_t values : {8, 12, 20}) {
    SCOPED_TRACE(values);
    const Policy policy = plan([&] { sines(x, 32).sum().backward(); }, values * kBytes);
    forget_gradients({x});
    const int64_t before = memory_.current_bytes();
    at::Tensor y = x;
    {
      PolicyScope scope(policy);
      for (int i = 0; i < 32; ++i) {
        y = y.sin();
        // The last result is the program's own.
        EXPECT_LE(memory_.current_bytes() - before, (values + 1) * kBytes) << "after op " << i;
      }
    }
    at::Tensor ones = at::ones_like(y);
    memory_.reset_peak();
    at::Tensor gradient = torch::autograd::grad({y}, {x}, {ones})[0];
    // y and ones; the gradient before and after an op, and cos(x); what the op has taken out.
    EXPECT_LE(memory_.peak_bytes() - before, (values + 2 + 3 + 1) * kBytes);
  }
}

TEST_F(PlanTest, IsTheBestOfAllWaysOnAChain) {
  // sin saves its input: ten values, of which five are kept, and the others replayed in stretches that fit on top.
  Tensors inputs = {sample({kElements})};
  const StepPlanner::Plan plan = plan_of([](const Tensors& in) { return sines(in[0], 11); }, inputs, 5 * kBytes);
  EXPECT_EQ(plan.summary().peak_bytes, 5 * kBytes);
  EXPECT_EQ(plan.summary().replayed_ops, 5);
}

TEST_F(PlanTest, NothingIsReplayedWhileEverythingFits) {
  Tensors inputs = transformer_inputs();
  const StepPlanner::Plan plan = plan_of(transformer, inputs, 1 << 30);
  EXPECT_EQ(plan.summary().replayed_ops, 0);
  EXPECT_EQ(run(transformer, inputs, plan, 1 << 30).backward.recomputed_ops, 0);
}

// Forces of a potential: what the inner backward makes is wanted by the outer one.
TEST_F(PlanTest, NothingIsReplayedOfABackwardThatMakesAGraphWhileEverythingFits) {
  const Tensors inputs = {sample({4, 8}), sample({8, 8})};
  const auto loss = [&] {
    const at::Tensor energy = inputs[0].mm(inputs[1]).sin().sum();
    return torch::autograd::grad({energy}, {inputs[1]}, {}, std::nullopt, /*create_graph=*/true)[0].pow(2).sum();
  };
  loss().backward();
  const at::Tensor expected = inputs[1].grad().clone();
  forget_gradients(inputs);
  StepPlanner planner([&] { loss().backward(); }, {.modelled_costs = true});
  const StepPlanner::Plan plan = planner.plan(1 << 30);
  forget_gradients(inputs);
  EXPECT_EQ(plan.summary().replayed_ops, 0);
  EXPECT_EQ(plan.summary().peak_bytes, planner.budget(1 << 30).peak_bytes);
  PolicyScope scope(plan);
  loss().backward();
  EXPECT_EQ(scope.trace()->stats().recomputed_ops, 0);
  EXPECT_TRUE(at::equal(inputs[1].grad(), expected));
}

// Each sum takes a result that is saved whatever the plan says, as that of a collective is, and that no backward wants.
at::Tensor sums_of_saved_results(const Tensors& in) {
  at::Tensor x = in[0];
  for (int i = 0; i < 6; ++i) {
    at::Tensor saved;
    {
      PolicyScope scope("must_save_all");
      saved = x.repeat({1});
    }
    x = sines(x + (saved + in[1]), 4);
  }
  return x;
}

TEST_F(PlanTest, APlanThatReplaysNothingHoldsWhatPlainTrainingHolds) {
  const Tensors inputs = {sample({kElements}), sample({kElements})};
  const StepPlanner::Plan plan = plan_of(sums_of_saved_results, inputs, 1 << 30);
  forget_gradients(inputs);
  EXPECT_EQ(plan.summary().replayed_ops, 0);
  EXPECT_EQ(plan.summary().forward_bytes, 24 * kBytes);  // what the sines take
  const auto bytes_of_tensors = [&](const auto& forward) {
    const int64_t before = memory_.current_bytes();
    const at::Tensor loss = forward();
    return memory_.current_bytes() - before;
  };
  const int64_t plain = bytes_of_tensors([&] { return sums_of_saved_results(inputs).sum(); });
  const int64_t planned = bytes_of_tensors([&] {
    PolicyScope scope(plan);
    return sums_of_saved_results(inputs).sum();
  });
  EXPECT_EQ(planned, plain);
  const Run run = this->run(sums_of_saved_results, inputs, plan, plan.summary().peak_bytes);
  EXPECT_EQ(run.held_after_forward, plan.summary().forward_bytes);
  EXPECT_EQ(run.backward.recomputed_ops, 0);
  EXPECT_EQ(run.backward.evicted_values, 0);
}

TEST_F(PlanTest, KeepsItsPromisesWhereResultsAreSavedForReplaysAlone) {
  expect_kept_promises(sums_of_saved_results, {sample({kElements}), sample({kElements})});
}

// The factor is the region's alone, and only a replay of the sum would take it.
TEST_F(PlanTest, HoldsATensorFromOutsideThatOnlyReplaysTakeIfOneIsPlanned) {
  const Network network = [](const Tensors& in) {
    at::Tensor x = in[0];
    for (int i = 0; i < 6; ++i) x = sines(x + at::full({kElements}, 1.5), 4);
    return x;
  };
  const Tensors inputs = {sample({kElements})};
  const StepPlanner::Plan plan = plan_of(network, inputs, 1 << 30);
  forget_gradients(inputs);
  EXPECT_EQ(plan.summary().forward_bytes, 24 * kBytes);
  const Run run = this->run(network, inputs, plan, plan.summary().peak_bytes);
  EXPECT_EQ(run.held_after_forward, 24 * kBytes);
  EXPECT_EQ(run.backward.recomputed_ops, 0);
  expect_kept_promises(network, inputs);
}

TEST_F(PlanTest, MeasuredCostsAndAForwardAloneWillDo) {
  Tensors inputs = transformer_inputs();
  const Tensors expected = plain_gradients(transformer, inputs);
  at::Tensor out;
  StepPlanner planner([&] { out = transformer(inputs).sum(); });
  out.reset();
  const StepPlanner::Plan plan = planner.plan(200 << 10);
  EXPECT_GT(plan.summary().forward_cost, 0);
  EXPECT_GT(plan.summary().replayed_ops, 0);
  for (const at::Tensor& input : inputs) EXPECT_FALSE(input.grad().defined());
  const Run run = this->run(transformer, inputs, plan, 200 << 10);
  expect_same_bits(run.gradients, expected, "gradients");
  EXPECT_EQ(run.backward.evicted_values, 0);
}

TEST_F(PlanTest, IsRecordedWithinItsBytes) {
  at::Tensor x = sample({kElements});
  const int64_t before = memory_.current_bytes();
  int64_t most = 0;
  plan(
      [&] {
        at::Tensor y = x;
        for (int i = 0; i < 32; ++i) {
          y = y.sin();
          most = std::max(most, memory_.current_bytes() - before);
        }
        y.sum().backward();
      },
      10 * kBytes);
  EXPECT_LE(most, 11 * kBytes);
}

TEST_F(PlanTest, APolicyServesManyStepsAndTwoAtATime) {
  Tensors inputs = mlp_inputs();
  const Tensors expected = plain_gradients(mlp, inputs);
  const Policy policy = plan_of(mlp, inputs, 24 << 10);
  Warnings warnings;
  for (int step = 0; step < 3; ++step) {
    at::Tensor first, second;
    {
      PolicyScope scope(policy);
      first = mlp(inputs);
    }
    {
      PolicyScope scope(policy);
      second = mlp(inputs);
    }
    expect_same_bits(torch::autograd::grad({second.sum()}, inputs), expected, "gradients of the second");
    expect_same_bits(torch::autograd::grad({first.sum()}, inputs), expected, "gradients of the first");
  }
  EXPECT_TRUE(warnings.messages.empty());
}

TEST_F(PlanTest, DecisionsOfScopesInsideAndTagsArePlannedAround) {
  at::Tensor x = sample({kElements});
  const Network network = [](const Tensors& in) {
    at::Tensor y = sines(in[0], 5);
    {
      PolicyScope scope("must_save_all");
      y = sines(y, 3);
    }
    y = sines(y, 5);
    tag_with_policy(y, CheckpointPolicy::MUST_SAVE);
    {
      PolicyScope scope([](const OpContext&) { return CheckpointPolicy::MUST_RECOMPUTE; });
      y = sines(y, 3);
    }
    return sines(y, 4);
  };
  const StepPlanner::Plan plan = plan_of(network, {x}, 9 * kBytes);
  forget_gradients({x});
  const Tensors expected = plain_gradients([](const Tensors& in) { return sines(in[0], 20); }, {x});
  const Run run = this->run(network, {x}, plan, plan.summary().peak_bytes);
  expect_same_bits(run.gradients, expected, "gradients");
  EXPECT_EQ(run.held_after_forward, plan.summary().forward_bytes);
  EXPECT_EQ(run.backward.recomputed_ops, plan.summary().replayed_ops);
  EXPECT_EQ(run.backward.evicted_values, 0);
}

// Another op, another size, one op more: one warning, the bytes hold, the gradients are right.
TEST_F(PlanTest, AnotherPathFallsBackToTheBudgetAndWarnsOnce) {
  const Tensors inputs = {sample({kElements})};
  const Network planned = [](const Tensors& in) { return sines(in[0], 24); };
  const Network another_op = [](const Tensors& in) { return sines(sines(in[0], 10).cos(), 13); };
  const Network more_ops = [](const Tensors& in) { return sines(in[0], 40); };
  const Network another_size = [](const Tensors& in) { return sines(in[0].repeat({2}), 23); };
  for (const Network& network : {another_op, more_ops, another_size}) {
    const Policy policy = plan_of(planned, inputs, 8 * kBytes);
    forget_gradients(inputs);
    const Tensors expected = plain_gradients(network, inputs);
    Warnings warnings;
    for (int step = 0; step < 3; ++step) {
      const Run run = this->run(network, inputs, policy, 8 * kBytes);
      expect_same_bits(run.gradients, expected, "gradients");
      EXPECT_GT(run.backward.evicted_values, 0);
    }
    ASSERT_EQ(warnings.messages.size(), 1);
    EXPECT_NE(warnings.messages[0].find("the program is not the one that was planned: op "), std::string::npos);
  }
}

TEST_F(PlanTest, TheBudgetOfTheScopeRulesIfItIsSmaller) {
  Tensors inputs = {sample({kElements})};
  const Policy policy = plan_of([](const Tensors& in) { return sines(in[0], 24); }, inputs, 16 * kBytes);
  MemoryBudget budget(6 * kBytes);
  PolicyScope scope(policy, {.memory_budget = budget});
  EXPECT_EQ(budget.bytes(), 6 * kBytes);
  at::Tensor y = sines(inputs[0], 24);
  EXPECT_LE(budget.held_bytes(), 6 * kBytes);
}

TEST_F(PlanTest, RejectsBytesThatAreNotPositive) {
  bool ran = false;
  for (const int64_t bytes : {0, -5}) {
    expect_error([&] { plan([&] { ran = true; }, bytes); },
                 {"must be a positive number of bytes, but is", std::to_string(bytes).c_str()});
  }
  EXPECT_FALSE(ran);
  expect_error([&] { StepPlanner([&] { ran = true; }, {.recording_budget = -1}); }, {"recording_budget", "-1"});
  expect_error([] { plan({}, 100); }, {"empty std::function"});
}

TEST_F(PlanTest, BelowTheSmallestPossibleSaysHowSmallAPlanIs) {
  at::Tensor x = sample({kElements});
  StepPlanner planner([&] { sines(x, 32).sum().backward(); });
  // Stretches of 7, 6, … 1 on top of the 0, 1, … 6 kept before, and those 7: up to 35 values. Here are 31.
  EXPECT_EQ(planner.smallest().summary().peak_bytes, 7 * kBytes);
  expect_error([&] { planner.plan(7 * kBytes - 1); },
               {"within 28671 bytes", "smallest that was found takes 28672", "in Python memory_budget="});
  EXPECT_EQ(planner.plan(7 * kBytes).summary().peak_bytes, 7 * kBytes);
}

TEST_F(PlanTest, RejectsAStepWithNothingToPlan) {
  at::Tensor x = sample({4});
  expect_error([] { plan([] {}, 100); }, {"nothing to plan", "ran 0 ops"});
  expect_error(
      [&] {
        plan(
            [&] {
              const at::AutoGradMode no_grad(false);
              x.sin();
            },
            100);
      },
      {"nothing to plan", "grad mode"});
}

TEST_F(PlanTest, RejectsToPlanInsideARegion) {
  PolicyScope scope("recompute_all");
  expect_error([] { plan([] {}, 100); }, {"inside a region"});
}

TEST_F(PlanTest, WhatTheStepThrowsArrivesAndNothingIsLeft) {
  at::Tensor x = sample({4});
  expect_error(
      [&] {
        plan(
            [&] {
              x.sin().cos();
              TORCH_CHECK(false, "the user's own error");
            },
            100);
      },
      {"the user's own error"});
  expect_nothing_left();
  expect_next_region_works();
}

TEST_F(PlanTest, AMetaModelIsPlannedAsTheRealOne) {
  Tensors inputs = mlp_inputs(), metas;
  for (const at::Tensor& input : inputs) metas.push_back(input.detach().to(at::kMeta).requires_grad_());
  const int64_t before = memory_.current_bytes();
  memory_.reset_peak();
  StepPlanner on_meta([&] { mlp(metas).sum().backward(); });
  EXPECT_LT(memory_.peak_bytes() - before, 1024);
  StepPlanner real([&] { mlp(inputs).sum().backward(); }, {.modelled_costs = true});
  for (const int64_t kib : {64, 40, 24}) {
    const PlanSummary a = on_meta.plan(kib << 10).summary(), b = real.plan(kib << 10).summary();
    EXPECT_EQ(a.forward_bytes, b.forward_bytes);
    EXPECT_EQ(a.peak_bytes, b.peak_bytes);
    EXPECT_EQ(a.replayed_ops, b.replayed_ops);
    EXPECT_EQ(a.replay_cost, b.replay_cost);
  }
  // The plan made without data serves the model with data.
  const StepPlanner::Plan plan = on_meta.plan(24 << 10);
  forget_gradients(inputs);
  const Run run = this->run(mlp, inputs, plan, 24 << 10);
  EXPECT_EQ(run.held_after_forward, plan.summary().forward_bytes);
  EXPECT_EQ(run.backward.evicted_values, 0);
}

// What takes the result copies it or not, by its strides: plans would count a copy that is none, or the other way
// round.
TEST_F(PlanTest, AttentionOnMetaIsLaidOutAsOnTheCpu) {
  const at::Tensor x = at::empty({4}, at::TensorOptions().device(at::kMeta)).requires_grad_();
  StepPlanner([&] { x.sin().sum().backward(); });  // since it, meta tensors have a kernel
  const at::Tensor batch_first = at::ones({2, 8, 3, 3, 4}), time_first = at::ones({8, 2, 3, 3, 4});
  for (const at::Tensor& query : {at::ones({2, 3, 8, 4}), at::ones({8, 2, 3, 4}).permute({1, 2, 0, 3}),
                                  batch_first.permute({3, 0, 2, 1, 4})[0], time_first.permute({3, 1, 2, 0, 4})[0]}) {
    const auto mixed = [](const at::Tensor& q) {
      return at::_scaled_dot_product_flash_attention_for_cpu(q, q, q, /*dropout_p=*/0.0, /*is_causal=*/true);
    };
    const auto real = mixed(query);
    const auto meta = mixed(at::empty_strided(query.sizes(), query.strides(), query.options().device(at::kMeta)));
    EXPECT_EQ(std::get<0>(meta).strides(), std::get<0>(real).strides());
    EXPECT_EQ(std::get<1>(meta).strides(), std::get<1>(real).strides());
  }
}

TEST_F(PlanTest, RandomOpsOnMetaAreRecorded) {
  at::Tensor x = at::empty({32, 32}, at::TensorOptions().device(at::kMeta)).requires_grad_();
  at::Tensor state = generator_state();
  StepPlanner planner([&] { at::dropout(x.sin(), 0.5, /*train=*/true).cos().sum().backward(); });
  EXPECT_TRUE(at::equal(generator_state(), state));
  EXPECT_EQ(planner.plan(1 << 20).summary().replayed_ops, 0);
  EXPECT_GT(planner.summarize([](const StepPlanner::Op&) { return false; }).replayed_ops, 1);
}

// A summary is of the recording, in which a result counts as gone once it may be dropped.
TEST_F(PlanTest, AStepWhoseLocalsLiveOnReplaysNoMoreThanTheSummarySays) {
  const Tensors inputs = {sample({kElements})};
  Tensors locals;
  const Network step = [&](const Tensors& in) {
    locals = {in[0]};
    for (int i = 0; i < 9; ++i) locals.push_back(locals.back().sin());
    return locals.back().cos();
  };
  StepPlanner planner([&] { step(inputs).sum().backward(); }, {.modelled_costs = true});
  forget_gradients(inputs);
  const PlanSummary summary = planner.summarize([](const StepPlanner::Op&) { return false; });
  const auto replays = [&](bool live_on) {
    PolicyScope scope("recompute_all");
    const at::Tensor loss = step(inputs).sum();
    if (!live_on) locals.clear();
    torch::autograd::grad({loss}, inputs);
    return scope.trace()->stats().recomputed_ops;
  };
  EXPECT_EQ(replays(/*live_on=*/false), 9);
  EXPECT_EQ(replays(/*live_on=*/true), 0);
  EXPECT_EQ(summary.replayed_ops, 9);
  locals.clear();
}

}  // namespace
}  // namespace ac2::test
