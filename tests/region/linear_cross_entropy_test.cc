#include "ac2/linear_cross_entropy.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ac2/scope.h"
#include "ac2/trace.h"
#include "tests/support/allocation_log.h"
#include "tests/support/autocast.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

constexpr int64_t kRows = 24, kColumns = 8, kWords = 256;

struct Case {
  std::string name;
  LinearCrossEntropyOptions options;
};

class LinearCrossEntropyTest : public CleanTest {
 protected:
  static at::Tensor numbers(at::IntArrayRef sizes, at::ScalarType type = at::kDouble) {
    return sample(sizes).detach().to(type).requires_grad_();
  }
  at::Tensor plain(const LinearCrossEntropyOptions& options) const {
    const at::Tensor logits = at::linear(hidden_, words_, options.bias);
    return at::cross_entropy_loss(logits.reshape({-1, kWords}), target_.reshape({-1}), options.class_weights,
                                  options.reduction == "mean" ? at::Reduction::Mean : at::Reduction::Sum,
                                  options.ignore_index, options.label_smoothing);
  }
  void expect_close_to_plain(const LinearCrossEntropyOptions& options, const std::string& what) const {
    Tensors with_gradient = {hidden_, words_};
    if (options.bias.defined()) with_gradient.push_back(options.bias);
    const at::Tensor expected = plain(options);
    const at::Tensor actual = linear_cross_entropy(hidden_, words_, target_, options);
    EXPECT_TRUE(at::allclose(actual, expected, 1e-12, 0)) << what;
    const Tensors expected_gradients = torch::autograd::grad({expected * 3}, with_gradient);
    const Tensors gradients = torch::autograd::grad({actual * 3}, with_gradient);
    for (size_t i = 0; i < gradients.size(); ++i) {
      EXPECT_TRUE(at::allclose(gradients[i], expected_gradients[i], 1e-10, 1e-14)) << what << ", gradient " << i;
    }
  }

  const at::Tensor hidden_ = numbers({2, kRows / 2, kColumns});
  const at::Tensor words_ = numbers({kWords, kColumns});
  const at::Tensor bias_ = numbers({kWords});
  const at::Tensor class_weights_ = at::linspace(0.5, 2, kWords, at::kDouble);
  const at::Tensor target_ = (at::arange(kRows, at::kLong) * 7).view({2, kRows / 2});
};

TEST_F(LinearCrossEntropyTest, LossAndGradientsArePlainOnesButForTheOrderOfAdditions) {
  target_[1].slice(0, 3, 7).fill_(-1);
  for (const std::string reduction : {"mean", "sum"}) {
    for (const std::optional<int64_t> chunks : {std::optional<int64_t>(), {1}, {5}, {100}}) {
      const Case cases[] = {
          {"plain", {}},
          {"bias", {.bias = bias_}},
          {"smoothed", {.label_smoothing = 0.1}},
          {"weighted", {.class_weights = class_weights_}},
          {"all", {.bias = bias_, .class_weights = class_weights_, .label_smoothing = 0.25}},
      };
      for (Case each : cases) {
        each.options.reduction = reduction;
        each.options.ignore_index = -1;
        each.options.chunks = chunks;
        expect_close_to_plain(each.options, each.name + ", " + reduction);
      }
    }
  }
}

TEST_F(LinearCrossEntropyTest, WhereAllTargetsAreIgnoredTheLossIsNoNumberAndGradientsAreZeroAsInPlainPyTorch) {
  target_.fill_(-100);
  const at::Tensor loss = linear_cross_entropy(hidden_, words_, target_);
  EXPECT_TRUE(loss.isnan().item<bool>());
  EXPECT_TRUE(plain({}).isnan().item<bool>());
  const at::Tensor gradient = torch::autograd::grad({loss}, {words_})[0];
  EXPECT_TRUE(same_bits(gradient, at::zeros_like(words_)));
}

TEST_F(LinearCrossEntropyTest, NoMoreThanTheLogitsOfOneChunkAreThereAndNoneInBackward) {
  constexpr int64_t chunks = 6, logits = kRows / chunks * kWords * 8, weight = kWords * kColumns * 8;
  AllocationLog& log = AllocationLog::install();
  at::Tensor loss;
  const std::vector<int64_t> forward =
      log.during([&] { loss = linear_cross_entropy(hidden_, words_, target_, {.chunks = chunks}); });
  // Logits, their logarithms and the gradients of both at once, beside the gradient of the weight.
  EXPECT_LT(*std::max_element(forward.begin(), forward.end()), 4 * logits + 2 * weight);
  Tensors gradients;
  const std::vector<int64_t> backward = log.during([&] {
    gradients = torch::autograd::grad({loss}, {hidden_, words_});
  });
  EXPECT_LE(*std::max_element(backward.begin(), backward.end()), weight + kRows * kColumns * 8 + 256);
}

TEST_F(LinearCrossEntropyTest, ARegionHoldsTheGradientsUnderEveryPolicyAndComputesNothingOfItAgain) {
  const Tensors expected = torch::autograd::grad({linear_cross_entropy(hidden_, words_, target_)}, {hidden_, words_});
  for (const char* policy : {"recompute_all", "must_save_all"}) {
    at::Tensor loss;
    std::optional<PolicyScope> scope(std::in_place, policy);
    const auto trace = scope->trace();
    loss = linear_cross_entropy(hidden_, words_, target_);
    scope.reset();
    // The gradients, and by how much they are divided.
    EXPECT_EQ(trace->stats().saved_bytes, (kRows + kWords) * kColumns * 8 + 4) << policy;
    expect_same_bits(torch::autograd::grad({loss}, {hidden_, words_}), expected, policy);
    EXPECT_EQ(trace->stats().recomputed_ops, 0) << policy;
  }
}

TEST_F(LinearCrossEntropyTest, HalfPrecisionIsAddedUpInFloat) {
  const at::Tensor hidden = numbers({4096, 16}, at::kHalf), words = numbers({64, 16}, at::kHalf);
  const at::Tensor target = at::arange(4096, at::kLong).remainder(64);
  const at::Tensor exact = at::cross_entropy_loss(at::linear(hidden.to(at::kDouble), words.to(at::kDouble)), target);
  const at::Tensor loss = linear_cross_entropy(hidden, words, target);
  EXPECT_EQ(loss.scalar_type(), at::kHalf);
  EXPECT_TRUE(at::allclose(loss.to(at::kDouble), exact, 2e-3, 0));
  const Tensors expected = torch::autograd::grad({exact * 1024}, {hidden, words});
  const Tensors gradients = torch::autograd::grad({loss * 1024}, {hidden, words});
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(gradients[i].scalar_type(), at::kHalf);
    EXPECT_TRUE(at::allclose(gradients[i].to(at::kDouble), expected[i].to(at::kDouble), 2e-2, 2e-3)) << i;
  }
}

TEST_F(LinearCrossEntropyTest, AGradientOfAMeanThatFitsIsFiniteWhereItsSumIsNot) {
  const at::Tensor hidden = at::full({16384, 1}, 8, at::kHalf), target = at::zeros({16384}, at::kLong);
  const at::Tensor words = at::zeros({2, 1}, at::kHalf).requires_grad_();
  const at::Tensor expected = at::tensor({-4, 4}, at::kFloat).to(at::kHalf).view({2, 1});
  for (const std::optional<int64_t> chunks : {std::optional<int64_t>(), {1}, {3}}) {
    const at::Tensor loss = linear_cross_entropy(hidden, words, target, {.chunks = chunks});
    EXPECT_TRUE(same_bits(torch::autograd::grad({loss}, {words})[0], expected)) << chunks.value_or(0);
  }
}

TEST_F(LinearCrossEntropyTest, WeightsOfNothingGiveNoNumbersAsInPlainPyTorch) {
  const LinearCrossEntropyOptions options{.class_weights = at::zeros({kWords}, at::kDouble)};
  const at::Tensor gradient =
      torch::autograd::grad({linear_cross_entropy(hidden_, words_, target_, options)}, {words_})[0];
  const at::Tensor expected = torch::autograd::grad({plain(options)}, {words_})[0];
  EXPECT_TRUE(at::equal(gradient.isnan(), expected.isnan()));
  EXPECT_TRUE(expected.isnan().any().item<bool>());
}

TEST_F(LinearCrossEntropyTest, RowsMayBeOneAndMayHaveNoNumbers) {
  const at::Tensor one = linear_cross_entropy(hidden_[0][3], words_, target_[0][3]);
  const at::Tensor expected = at::cross_entropy_loss(at::linear(hidden_[0][3], words_), target_[0][3]);
  EXPECT_TRUE(at::allclose(one, expected, 1e-12, 0));
  const at::Tensor none = at::zeros({6, 0}), words = at::zeros({7, 0});
  const at::Tensor bias = numbers({7}, at::kFloat), target = at::arange(6, at::kLong);
  const at::Tensor loss = linear_cross_entropy(none, words, target, {.bias = bias});
  EXPECT_TRUE(at::allclose(loss, at::cross_entropy_loss(at::linear(none, words, bias), target)));
  torch::autograd::grad({loss}, {bias});
}

TEST_F(LinearCrossEntropyTest, AutocastIsThatOfTheCall) {
  const at::Tensor hidden = numbers({16, kColumns}, at::kFloat), words = numbers({kWords, kColumns}, at::kFloat);
  const at::Tensor target = at::arange(16, at::kLong);
  at::Tensor loss, expected;
  {
    const Autocast autocast;
    loss = linear_cross_entropy(hidden, words, target, {.chunks = 2});
    expected = at::cross_entropy_loss(at::linear(hidden, words), target);
  }
  EXPECT_EQ(loss.scalar_type(), expected.scalar_type());
  EXPECT_TRUE(at::allclose(loss, expected, 1e-2, 0));
  const Tensors gradients = torch::autograd::grad({loss}, {hidden, words});
  const Tensors of_plain = torch::autograd::grad({expected}, {hidden, words});
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(gradients[i].scalar_type(), at::kFloat);
    EXPECT_TRUE(at::allclose(gradients[i], of_plain[i], 2e-2, 1e-3)) << i;
  }
}

TEST_F(LinearCrossEntropyTest, OnlyWhatRequiresAGradientHasOne) {
  const at::Tensor frozen = words_.detach();
  const at::Tensor loss = linear_cross_entropy(hidden_, frozen, target_);
  const at::Tensor expected =
      at::cross_entropy_loss(at::linear(hidden_, frozen).view({-1, kWords}), target_.view({-1}));
  EXPECT_TRUE(at::allclose(torch::autograd::grad({loss}, {hidden_})[0], torch::autograd::grad({expected}, {hidden_})[0],
                           1e-10, 1e-14));
  EXPECT_FALSE(linear_cross_entropy(hidden_.detach(), frozen, target_).requires_grad());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(linear_cross_entropy(hidden_, words_, target_).requires_grad());
}

TEST_F(LinearCrossEntropyTest, ARetainedGraphGivesTheSameTwice) {
  const at::Tensor loss = linear_cross_entropy(hidden_, words_, target_);
  const Tensors first = torch::autograd::grad({loss}, {hidden_, words_}, {}, /*retain_graph=*/true);
  expect_same_bits(torch::autograd::grad({loss}, {hidden_, words_}), first, "second");
}

TEST_F(LinearCrossEntropyTest, ASecondDerivativeIsAnErrorThatNamesInChunks) {
  const at::Tensor loss = linear_cross_entropy(hidden_, words_, target_);
  expect_error([&] { torch::autograd::grad({loss}, {hidden_}, {}, true, /*create_graph=*/true); },
               {"no second derivative", "in_chunks()"});
}

TEST_F(LinearCrossEntropyTest, BadInputIsAnErrorThatSaysWhatWasExpected) {
  const auto with = [&](const LinearCrossEntropyOptions& options) {
    linear_cross_entropy(hidden_, words_, target_, options);
  };
  expect_error([&] { linear_cross_entropy(hidden_, words_.t(), target_); }, {"weight is [8, 256]", "[classes, 8]"});
  expect_error([&] { linear_cross_entropy(hidden_, words_, target_.view({-1})); }, {"target is [24]", "[2, 12]"});
  expect_error([&] { linear_cross_entropy(hidden_, words_, target_.to(at::kDouble)); }, {"Double", "class indices"});
  expect_error([&] { linear_cross_entropy(target_, words_, target_); }, {"Long", "floating-point"});
  expect_error([&] { linear_cross_entropy({}, words_, target_); }, {"undefined"});
  expect_error([&] { with({.bias = bias_.slice(0, 1)}); }, {"bias is [255]", "[256]"});
  expect_error([&] { with({.class_weights = bias_}); }, {"class_weights requires a gradient"});
  expect_error([&] { with({.reduction = "none"}); }, {"\"none\"", "\"mean\" or \"sum\""});
  expect_error([&] { with({.label_smoothing = 2}); }, {"label_smoothing is 2", "0 to 1"});
  expect_error([&] { with({.chunks = 0}); }, {"positive", "is 0"});
}

}  // namespace
}  // namespace ac2::test
