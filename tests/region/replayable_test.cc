// Functions of the program's that are ops (ac2/replayable.h): kernels that write through pointers, inside of autograd's
// functions and without, as regions, policies, budgets and verify mode see them.
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ac2/memory_budget.h"
#include "ac2/policy.h"
#include "ac2/replayable.h"
#include "ac2/scope.h"
#include "ac2/trace.h"
#include "policies/policies.h"
#include "tests/support/regions.h"
#include "tests/support/warnings.h"

namespace ac2::test {
namespace {

using enum CheckpointPolicy;

// A kernel that no dispatcher sees.
at::Tensor tripled(const at::Tensor& x) {
  at::Tensor out = at::empty_like(x);
  const at::Tensor in = x.contiguous();
  for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<float>()[i] = 3 * in.data_ptr<float>()[i];
  return out;
}

class ReplayableTest : public CleanTest {
 protected:
  // A function object that counts its calls.
  auto counted() {
    return replayable("tripled", [this](const at::Tensor& x) {
      ++calls_;
      return tripled(x);
    });
  }
  // What a region has done after the backward of (tripled(x) * weight).cos().
  TraceStats train(const Policy& policy, ScopeOptions options = {}) {
    const auto fn = counted();
    const PolicyScope scope(policy, options);
    const at::Tensor loss = (fn(x_) * weight_).cos();
    in_forward_ = scope.trace()->stats();
    EXPECT_TRUE(same_bits(gradient_of(loss, weight_), gradient_of((tripled(x_) * weight_).cos(), weight_)));
    return scope.trace()->stats();
  }

  const at::Tensor x_ = sample({16}).detach();
  const at::Tensor weight_ = sample({16});
  int calls_ = 0;
  TraceStats in_forward_;
};

TEST_F(ReplayableTest, ACallIsOneOpThatIsComputedAgain) {
  const TraceStats stats = train("recompute_all");
  EXPECT_EQ(in_forward_.recorded_ops, 3);
  EXPECT_EQ(in_forward_.saved_bytes, 2 * 64);  // x and weight
  EXPECT_EQ(stats.recomputed_ops, 2);          // the call, and the product
  EXPECT_EQ(calls_, 2);
}

TEST_F(ReplayableTest, PoliciesKnowItByItsName) {
  EXPECT_EQ(train(policies::save_ops({"replayable::tripled"})).recomputed_ops, 1);
  EXPECT_EQ(calls_, 1);
  bool asked = false;
  train([&asked](const OpContext& op) {
    asked = asked || op.is("replayable::tripled");
    return PREFER_RECOMPUTE;
  });
  EXPECT_TRUE(asked);
}

TEST_F(ReplayableTest, ABudgetDropsItsResults) {
  const TraceStats stats = train(PREFER_SAVE, {.memory_budget = MemoryBudget::soft(64, /*modelled_costs=*/true)});
  EXPECT_GT(stats.evicted_values, 0);
  EXPECT_EQ(calls_, 2);
}

TEST_F(ReplayableTest, OutsideOfRegionsItIsCalledOnce) {
  EXPECT_TRUE(same_bits(counted()(x_), tripled(x_)));
  EXPECT_EQ(calls_, 1);
}

TEST_F(ReplayableTest, TensorsMayLieInAnyNestingAndTheRestIsKept) {
  using Nested = std::vector<std::tuple<at::Tensor, std::string>>;
  const auto fn = replayable("nested", [](const Nested& nested, const std::optional<at::Tensor>& bias, double by) {
    at::Tensor sum = at::zeros({16});
    for (const auto& [tensor, name] : nested) sum = sum + tensor * static_cast<double>(name.size());
    return std::make_tuple(sum * by, std::vector<at::Tensor>{at::Tensor(), bias ? *bias + 1 : sum}, 7);
  });
  const auto step = [&](const auto& call) {
    const auto [sum, more, number] = call(Nested{{x_, "a"}, {x_ + 1, "bcd"}}, std::optional<at::Tensor>(), 0.5);
    EXPECT_EQ(number, 7);
    EXPECT_FALSE(more[0].defined());
    return (sum * more[1] * weight_).sum();
  };
  const PolicyScope scope("recompute_all");
  const at::Tensor recomputed = gradient_of(step(fn), weight_);
  const auto plain = [](const Nested& nested, const std::optional<at::Tensor>& /*bias*/, double by) {
    const at::Tensor sum = at::zeros({16}) + std::get<0>(nested[0]) * 1. + std::get<0>(nested[1]) * 3.;
    return std::make_tuple(sum * by, std::vector<at::Tensor>{at::Tensor(), sum}, 7);
  };
  EXPECT_TRUE(same_bits(recomputed, gradient_of(step(plain), weight_)));
  EXPECT_GT(scope.trace()->stats().recomputed_ops, 0);
}

TEST_F(ReplayableTest, AReplayDrawsForwardsNumbersAndMovesNoGenerator) {
  const auto noise = replayable("noise", [](const at::Tensor& x) { return x * at::rand_like(x); });
  const auto step = [&](const auto& fn) {
    at::manual_seed(3);
    at::Tensor y;
    {
      const PolicyScope scope("recompute_all");
      y = (fn(x_) * weight_).cos();
    }
    const at::Tensor gradient = gradient_of(y, weight_);
    return std::pair(gradient, at::rand({4}));
  };
  const auto [gradient, next] = step(noise);
  const auto [expected, expected_next] = step([](const at::Tensor& x) { return x * at::rand_like(x); });
  EXPECT_TRUE(same_bits(gradient, expected));
  EXPECT_TRUE(same_bits(next, expected_next));
}

TEST_F(ReplayableTest, AGeneratorAmongTheArgumentsDrawsTheSameNumbersAndStaysWhereItIs) {
  const auto noise = replayable("noise_of", [](const at::Tensor& x, const std::vector<at::Generator>& generators) {
    return x * at::rand(x.sizes(), generators[0], x.options());
  });
  at::Generator generator = at::detail::createCPUGenerator(5), again = at::detail::createCPUGenerator(5);
  const PolicyScope scope("recompute_all");
  const at::Tensor y = (noise(x_, std::vector<at::Generator>{generator}) * weight_).cos();
  const at::Tensor plain = (x_ * at::rand({16}, again) * weight_).cos();
  EXPECT_TRUE(same_bits(gradient_of(y, weight_), gradient_of(plain, weight_)));
  EXPECT_TRUE(same_bits(generator.get_state(), again.get_state()));
  const std::vector<at::Generator> three(3, generator);
  expect_error([&] { noise(x_, three); }, {"was given 3 generators; expected 2 at most"});
}

TEST_F(ReplayableTest, ABackwardThroughItsResultsIsAnErrorThatSaysWhatToDo) {
  const auto fn = counted();
  expect_error([&] { fn(weight_).sum().backward(); },
               {"replayable::tripled has no derivative", "torch::autograd::Function"});
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(fn(weight_).requires_grad());
}

struct Tripled : torch::autograd::Function<Tripled> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    static const auto& fn = *new auto(replayable("tripled_forward", &tripled));
    const at::Tensor y = fn(x);
    context->save_for_backward({y});
    return y;
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    return {gradients[0] * 3 + 0 * context->get_saved_variables()[0]};
  }
};

TEST_F(ReplayableTest, InTheForwardOfAFunctionOfAutogradsItHasADerivativeAndIsComputedAgain) {
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    const PolicyScope scope("recompute_all");
    trace = scope.trace();
    y = Tripled::apply(weight_.sin()).cos();
    EXPECT_EQ(trace->stats().saved_bytes, 64);  // weight
  }
  EXPECT_TRUE(same_bits(gradient_of(y, weight_), gradient_of(Tripled::apply(weight_.sin()).cos(), weight_)));
  EXPECT_EQ(trace->stats().recomputed_ops, 2);  // sin, and the call
}

TEST_F(ReplayableTest, WhatItIsGivenAndMakesIsNotHeldAsWhatAnUndeclaredKernelMadeIs) {
  const Warnings warnings;
  {
    const PolicyScope scope("recompute_all");
    const at::Tensor y = (counted()(x_.sin()) * weight_).cos();
    EXPECT_EQ(scope.trace()->stats().saved_bytes, 2 * 64);
  }
  EXPECT_TRUE(warnings.messages.empty());
}

TEST_F(ReplayableTest, VerifyModeFindsAFunctionThatComputesOtherResults) {
  int calls = 0;
  const auto fn = replayable("counting", [&calls](const at::Tensor& x) { return x + static_cast<double>(++calls); });
  const PolicyScope scope("recompute_all", {.verify = true});
  const at::Tensor y = (fn(x_) * weight_).cos();
  expect_error([&] { y.sum().backward(); }, {"replayable::counting"});
}

TEST_F(ReplayableTest, VerifyModeFindsAFunctionThatWritesToItsArguments) {
  const auto fn = replayable("writing", [](const at::Tensor& x) {
    x.data_ptr<float>()[0] += 1;
    return x + 1;
  });
  const PolicyScope scope("recompute_all", {.verify = true});
  expect_error([&] { fn(x_.sin()); }, {"replayable::writing"});
}

TEST_F(ReplayableTest, OtherNumbersOfTensorsInAReplayAreAnError) {
  int calls = 0;
  const auto fn = replayable("growing", [&calls](const at::Tensor& x) {
    return std::vector<at::Tensor>(static_cast<size_t>(++calls), x + 1);
  });
  const PolicyScope scope("recompute_all");
  const at::Tensor y = (fn(x_)[0] * weight_).cos();
  expect_error([&] { y.sum().backward(); }, {"replayable::growing returned 2 tensors in a replay and 1 in forward"});
}

TEST_F(ReplayableTest, AWrongNameIsAnError) {
  for (const std::string name : {"", "1st", "a::b", "a b"}) {
    expect_error([&] { replayable(name, &tripled); },
                 {("named \"" + name + "\"").c_str(), "letters, digits and underscores"});
  }
}

TEST_F(ReplayableTest, ItsArgumentsLiveAsLongAsItMayBeReplayed) {
  auto kept = std::make_shared<int>(2);
  const std::weak_ptr<int> watched = kept;
  const auto fn =
      replayable("holding", [](const at::Tensor& x, const std::shared_ptr<int>& times) { return x * *times; });
  at::Tensor y;
  {
    const PolicyScope scope("recompute_all");
    y = (fn(x_, std::move(kept)) * weight_).cos();
  }
  EXPECT_FALSE(watched.expired());
  y.sum().backward();
  y = at::Tensor();
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace ac2::test
