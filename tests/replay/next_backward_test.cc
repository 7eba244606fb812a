// A backward in two halves: the first keeps its graph and computes some gradients, the second computes the others.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "ac2/memory_budget.h"
#include "ac2/scope.h"
#include "ac2/trace.h"
#include "tests/support/regions.h"
#include "tests/support/warnings.h"

namespace ac2::test {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::variable_list;

class NextBackwardTest : public CleanTest {};

// The gradients that arrive at `wanted`, from `gradients` at `roots`.
variable_list backward(const edge_list& roots, const variable_list& gradients, const edge_list& wanted, bool keeps) {
  return torch::autograd::Engine::get_default_engine().execute(roots, gradients, keeps, false, false, wanted);
}

Edge edge_of(const at::Tensor& tensor) {
  return torch::autograd::impl::gradient_edge(tensor);
}

// Of a region: what stats() says after forward and after each half.
struct Seen {
  Tensors gradients;
  TraceStats forward, between, after;
};

struct Stage {
  at::Tensor x = sample({4, 8}), first = sample({16, 8}), second = sample({8, 16});
};

// As torch.distributed.pipelining does it: the second half begins at the products, with the gradients that the first
// has found there.
Seen in_halves(const Stage& inputs, const std::optional<ScopeOptions>& options) {
  Seen seen;
  const Stage stage{leaf_like(inputs.x), leaf_like(inputs.first), leaf_like(inputs.second)};
  std::optional<PolicyScope> scope;
  std::shared_ptr<const Trace> trace;
  if (options) {
    scope.emplace("recompute_all", *options);
    trace = scope->trace();
  }
  const auto note = [&](TraceStats& stats) {
    if (trace) {
      stats = trace->stats();
    }
  };
  edge_list products;
  at::Tensor y = at::linear(stage.x, stage.first);
  products.push_back(edge_of(y));
  y = at::linear(at::gelu(y), stage.second);
  products.push_back(edge_of(y));
  y = y.sin();
  scope.reset();
  note(seen.forward);
  const variable_list found =
      backward({edge_of(y)}, {at::ones_like(y)}, {edge_of(stage.x), products[0], products[1]}, true);
  y.reset();
  note(seen.between);
  seen.gradients = {found[0], backward({products[1]}, {found[2]}, {edge_of(stage.second)}, false)[0],
                    backward({products[0]}, {found[1]}, {edge_of(stage.first)}, false)[0]};
  products.clear();
  note(seen.after);
  return seen;
}

constexpr int64_t kGelu = 4 * 16 * 4;  // bytes of its result, which the gradient of the second weight takes

TEST_F(NextBackwardTest, WhatTheFirstHalfHasReplayedIsReplayedAgainByDefault) {
  const Stage stage;
  const Seen plain = in_halves(stage, std::nullopt), seen = in_halves(stage, ScopeOptions{});
  expect_same_bits(seen.gradients, plain.gradients, "gradients");
  EXPECT_EQ(seen.between.recomputed_ops, 3);  // the products and gelu
  EXPECT_EQ(seen.between.recomputed_bytes, 0);
  EXPECT_EQ(seen.between.saved_bytes, seen.forward.saved_bytes);
  EXPECT_EQ(seen.after.recomputed_ops, 5);  // the first product and gelu again
  EXPECT_EQ(seen.after.saved_bytes, 0);
}

TEST_F(NextBackwardTest, WhatTheSecondHalfReadsAgainIsReplayedOnceIfAsked) {
  const Stage stage;
  const Seen plain = in_halves(stage, std::nullopt);
  const Seen seen = in_halves(stage, ScopeOptions{.keep_for_next_backward = true});
  expect_same_bits(seen.gradients, plain.gradients, "gradients");
  EXPECT_EQ(seen.between.recomputed_ops, 3);
  EXPECT_EQ(seen.between.recomputed_bytes, 0);
  EXPECT_EQ(seen.between.saved_bytes, seen.forward.saved_bytes + kGelu);  // not what gelu takes
  EXPECT_EQ(seen.after.recomputed_ops, 3);
  EXPECT_EQ(seen.after.saved_bytes, 0);
}

// Of the nodes that compute a weight the first half runs none.
Seen with_a_computed_weight(const at::Tensor& given_x, const at::Tensor& given_v, const ScopeOptions& options) {
  Seen seen;
  const at::Tensor x = leaf_like(given_x), v = leaf_like(given_v);
  std::optional<PolicyScope> scope;
  scope.emplace("recompute_all", options);
  const auto trace = scope->trace();
  at::Tensor y = x.mm(v.sin().cos());
  scope.reset();
  seen.forward = trace->stats();
  seen.gradients.push_back(backward({edge_of(y)}, {at::ones_like(y)}, {edge_of(x)}, true)[0]);
  seen.between = trace->stats();
  seen.gradients.push_back(backward({edge_of(y)}, {at::ones_like(y)}, {edge_of(v)}, false)[0]);
  y.reset();
  seen.after = trace->stats();
  return seen;
}

TEST_F(NextBackwardTest, AWeightThatIsComputedIsReplayedOnceIfAsked) {
  const at::Tensor x = sample({4, 8}), v = sample({8, 8});
  const at::Tensor plain_x = leaf_like(x), plain_v = leaf_like(v);
  plain_x.mm(plain_v.sin().cos()).sum().backward();
  for (const bool keeps : {false, true}) {
    const Seen seen = with_a_computed_weight(x, v, {.keep_for_next_backward = keeps});
    expect_same_bits(seen.gradients, {plain_x.grad(), plain_v.grad()}, "gradients");
    EXPECT_EQ(seen.between.recomputed_ops, 2) << keeps;
    EXPECT_EQ(seen.between.saved_bytes - seen.forward.saved_bytes, keeps ? 2 * 8 * 8 * 4 : 0);  // of sin and cos
    EXPECT_EQ(seen.after.recomputed_ops, keeps ? 2 : 4) << keeps;
    EXPECT_EQ(seen.after.saved_bytes, 0) << keeps;
  }
}

TEST_F(NextBackwardTest, ABackwardThatLeavesNoGradientOutHoldsNothing) {
  const at::Tensor x = sample({4, 8}), weight = sample({8, 8});
  std::optional<PolicyScope> scope;
  scope.emplace("recompute_all", ScopeOptions{.keep_for_next_backward = true});
  const auto trace = scope->trace();
  at::Tensor y = x.sin().mm(weight.cos());
  scope.reset();
  const int64_t saved = trace->stats().saved_bytes;
  gradients_of({y}, {x, weight}, true);
  EXPECT_EQ(trace->stats().recomputed_ops, 2);
  EXPECT_EQ(trace->stats().saved_bytes, saved);
}

TEST_F(NextBackwardTest, UnderABudgetKeepingWouldHaveNoEffectAndIsAnError) {
  const std::vector<std::function<void()>> openings = {
      [] { const PolicyScope scope("recompute_all", {.memory_budget = 1 << 20, .keep_for_next_backward = true}); },
      [] { const PolicyScope scope({.keep_for_next_backward = true}); },
      [] {
        const PolicyScope outer({.memory_budget = 1 << 20});
        const PolicyScope inner("recompute_all", {.keep_for_next_backward = true});
      }};
  for (const std::function<void()>& opening : openings) {
    expect_error(opening, {"keep_for_next_backward would have no effect"});
    EXPECT_FALSE(is_checkpoint_enabled());
  }
}

}  // namespace
}  // namespace ac2::test
