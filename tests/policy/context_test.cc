// current_decision: what the policies in force say of an op, asked from user code.
#include "ac2/current_decision.h"

#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ac2/op_scopes.h"
#include "policies/policies.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using enum CheckpointPolicy;
using ContextTest = CleanTest;

TEST_F(ContextTest, IsNullWhereNothingIsRecorded) {
  EXPECT_EQ(current_decision("aten::mm"), std::nullopt);
  PolicyScope scope("recompute_all");
  EXPECT_TRUE(current_decision("aten::mm"));
  DisableCheckpointing disable;
  EXPECT_EQ(current_decision("aten::mm"), std::nullopt);
}

TEST_F(ContextTest, IsNullInABackwardInsideARegion) {
  struct Asks : torch::autograd::Function<Asks> {
    static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 2; }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                   torch::autograd::variable_list grads) {
      EXPECT_EQ(current_decision("aten::mm"), std::nullopt);
      return {grads[0] * 2};
    }
  };
  at::Tensor x = sample({4});
  PolicyScope scope("recompute_all");
  EXPECT_TRUE(gradient_of(Asks::apply(x), x).defined());
}

TEST_F(ContextTest, ResolvesTheOpenScopes) {
  PolicyScope outer("recompute_all");
  EXPECT_EQ(current_decision("aten::mm"), PolicyDecision(PREFER_RECOMPUTE));
  {
    PolicyScope inner(policies::save_compute_intensive());
    EXPECT_EQ(current_decision("aten::mm"), PolicyDecision(MUST_SAVE));
    EXPECT_EQ(current_decision("aten::gelu"), PolicyDecision(PREFER_RECOMPUTE));
    RecomputeScope gelu_again;
    EXPECT_EQ(current_decision("aten::gelu"), PolicyDecision(MUST_RECOMPUTE));
    expect_error([] { current_decision("aten::mm"); }, {"Conflicting policies", "aten::mm"});
  }
  EXPECT_EQ(current_decision("aten::mm"), PolicyDecision(PREFER_RECOMPUTE));
}

TEST_F(ContextTest, IsWhatTheOpIsThenDecided) {
  at::Tensor x = sample({4, 4});
  const Policy policy = policies::dots_saveable();
  for (const char* op : {"aten::mm", "aten::sin"}) {
    at::Tensor y;
    std::shared_ptr<const Trace> trace;
    std::optional<PolicyDecision> decision;
    {
      PolicyScope scope(policy);
      trace = scope.trace();
      decision = current_decision(op);
      y = (op == std::string("aten::mm") ? x.mm(x) : x.sin()).cos();
    }
    gradient_of(y, x);
    EXPECT_EQ(trace->stats().recomputed_ops, decision->saves() ? 0 : 1) << op;
  }
}

TEST_F(ContextTest, RejectsAnUnknownOpAndSuggestsTheNearest) {
  expect_error([] { current_decision("aten::_sofmax"); }, {"current_decision", "aten::_sofmax", "aten::_softmax"});
  PolicyScope scope("recompute_all");
  expect_error([] { current_decision("aten::_sofmax"); }, {"current_decision", "aten::_sofmax", "aten::_softmax"});
  expect_error([] { current_decision("aten::add.Tensr"); }, {"aten::add", "no overload", "Tensor"});
  expect_error([] { current_decision("aten::*mm*"); }, {"is a pattern", "one operator"});
  expect_error([] { current_decision("mm"); }, {"not an operator's name", "aten::mm"});
}

TEST_F(ContextTest, ANameWithoutAnOverloadIsForAllIfTheyAreDecidedAlike) {
  PolicyScope scope(policies::save_ops({"aten::add", "aten::mul.Tensor"}));
  EXPECT_EQ(current_decision("aten::add"), PolicyDecision(MUST_SAVE));
  EXPECT_EQ(current_decision("aten::mul.Tensor"), PolicyDecision(MUST_SAVE));
  EXPECT_EQ(current_decision("aten::mul.Scalar"), PolicyDecision(PREFER_RECOMPUTE));
  EXPECT_EQ(current_decision("aten::mul_"), PolicyDecision(PREFER_RECOMPUTE));
  expect_error([] { current_decision("aten::mul"); },
               {"overloads of \"aten::mul\" are decided differently", "aten::mul.Tensor", "aten::mul.Scalar"});
}

TEST_F(ContextTest, ACallableHasToSeeTheCall) {
  at::Tensor small = sample({4});
  at::Tensor large = sample({4096});
  PolicyScope scope(policies::by_size(1024));
  expect_error([] { current_decision("aten::sin"); }, {"aten::sin", "callable", "inputs and outputs"});
  EXPECT_EQ(current_decision("aten::sin", {small}, {small}), PolicyDecision(MUST_SAVE));
  EXPECT_EQ(current_decision("aten::sin", {large}, {large}), PolicyDecision(PREFER_RECOMPUTE));
  EXPECT_EQ(scope.trace()->stats().recorded_ops, 0);
}

TEST_F(ContextTest, ACallableSeesTheIndexOfTheNextOpAndMayRunOps) {
  std::vector<int64_t> seen;
  PolicyScope scope([&](const OpContext& op) {
    seen.push_back(op.index());
    EXPECT_TRUE(op.is("aten::sin"));
    op.outputs()[0].toTensor().abs();
    return PREFER_SAVE;
  });
  at::Tensor x = sample({4});
  x.sin();
  current_decision("aten::sin", {x}, {x});
  x.sin();
  EXPECT_EQ(seen, (std::vector<int64_t>{0, 1, 1}));
  EXPECT_EQ(scope.trace()->stats().recorded_ops, 2);
}

TEST_F(ContextTest, TheCallMustFitTheSchema) {
  at::Tensor x = sample({4});
  PolicyScope scope("recompute_all");
  EXPECT_EQ(current_decision("aten::sin", {x}, {x}), PolicyDecision(PREFER_RECOMPUTE));
  expect_error([&] { current_decision("aten::sin", {x, x}, {x}); }, {"aten::sin", "takes 1", "2 inputs"});
  expect_error([&] { current_decision("aten::add", {x, x, 1}, {x}); }, {"several overloads", "aten::add.Tensor"});
  EXPECT_EQ(current_decision("aten::add.Tensor", {x, x, 1}, {x}), PolicyDecision(PREFER_RECOMPUTE));
}

}  // namespace
}  // namespace ac2::test
