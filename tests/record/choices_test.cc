// Ops that choose by numbers (indices, masks) choose once, where a kernel that ran before them may compute other
// numbers the next time.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <functional>
#include <tuple>

#include "tests/support/plain_bits.h"
#include "tests/support/regions.h"
#include "tests/support/ways.h"

namespace ac2::test {
namespace {

// As a kernel that adds in any order, but so that each replay differs.
at::Tensor add_up(const at::Tensor& x) {
  return is_recomputing() ? x.neg() : x.clone();
}

// Numbers and a count, as kernels return that scan sequences.
std::tuple<at::Tensor, at::Tensor> scan(const at::Tensor& x) {
  return {x.cumsum(0), at::full({}, x.size(0), at::kLong)};
}

TORCH_LIBRARY(choices_test, library) {
  library.def("scan(Tensor x) -> (Tensor, Tensor)");
  library.impl("scan", c10::DispatchKey::CPU, scan);
  library.def("add_up(Tensor x) -> Tensor");
  library.impl("add_up", c10::DispatchKey::CPU, add_up);
}

at::Tensor scores(const at::Tensor& x) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("choices_test::add_up", "").typed<at::Tensor(const at::Tensor&)>();
  return op.call(x.detach());
}

class ChoicesTest : public CleanTest {
 protected:
  at::Tensor route(const at::Tensor& numbers) const {
    const at::Tensor chosen = std::get<1>(numbers.topk(2, 1));
    return (x_.gather(1, chosen) * w_.gather(1, chosen)).sin();
  }
  // The bytes that a region of fn() holds at its end, beside the inputs.
  int64_t saved_bytes(const std::function<at::Tensor()>& fn, const Policy& policy) {
    at::Tensor y;
    const PolicyScope scope(policy);
    y = fn();
    return scope.trace()->stats().saved_bytes - kInputs;
  }

  const at::Tensor x_ = at::linspace(-1, 1, 16).view({4, 4}).requires_grad_();
  const at::Tensor w_ = at::linspace(2, 0.5, 16).view({4, 4});
  static constexpr int64_t kMatrix = 64;
  static constexpr int64_t kInputs = 2 * kMatrix;  // x_ and w_
  static constexpr int64_t kIndices = 4 * 2 * 8;
};

TEST_F(ChoicesTest, ARouterThatFollowsAnOpThatMayVaryChoosesOnce) {
  expect_plain_bits(
      [&](const Region& region) {
        at::Tensor y;
        region([&] { y = route(scores(x_)); });
        return gradients_of({y}, {x_});
      },
      all_ways(/*verify=*/false));
}

TEST_F(ChoicesTest, AMaskThatFollowsItFromAfarStays) {
  expect_plain_bits(
      [&](const Region& region) {
        at::Tensor y;
        region([&] {
          at::Tensor numbers = scores(x_).exp();
          numbers.sub_(1);
          y = at::where(numbers.relu() > 0, x_.sin(), x_.cos());
        });
        return gradients_of({y}, {x_});
      },
      all_ways(/*verify=*/false));
}

TEST_F(ChoicesTest, WhatFollowsOpsThatDoNotVaryIsChosenAgain) {
  EXPECT_EQ(saved_bytes([&] { return route(x_.detach().cos()); }, "recompute_all"), 0);
}

TEST_F(ChoicesTest, TheIndicesAreSaved) {
  EXPECT_EQ(saved_bytes([&] { return route(scores(x_)); }, "recompute_all"), kIndices);
}

TEST_F(ChoicesTest, ASavedResultIsComputedOnceSoThatWhatFollowsIsChosenAgain) {
  EXPECT_EQ(saved_bytes([&] { return route(scores(x_)); }, saving({"choices_test::add_up"})), kMatrix);
}

TEST_F(ChoicesTest, AnOperatorOfOthersThatReturnsACountBesideItsNumbersIsComputedAgain) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("choices_test::scan", "")
                             .typed<std::tuple<at::Tensor, at::Tensor>(const at::Tensor&)>();
  const auto states = [&] {
    const auto [numbers, count] = op.call(x_.detach());
    return x_ * numbers * count;
  };
  EXPECT_EQ(saved_bytes(states, "recompute_all") + kMatrix, 0);  // w_ is not read
}

TEST_F(ChoicesTest, MustRecomputeChoosesAgain) {
  const Policy again = [](const OpContext& op) -> PolicyDecision {
    return op.is("aten::topk") ? CheckpointPolicy::MUST_RECOMPUTE : CheckpointPolicy::PREFER_RECOMPUTE;
  };
  EXPECT_EQ(saved_bytes([&] { return route(scores(x_)); }, again), 0);
  const at::Tensor y = apply_ac_policy_fn([&] { return route(scores(x_)); }, again);
  EXPECT_FALSE(same_bits(gradient_of(y, x_), gradient_of(route(scores(x_)), x_)));
}

TEST_F(ChoicesTest, UnderDeterministicAlgorithmsLibTorchsOwnOpsDoNotVary) {
  const at::Tensor rows = at::arange(4, at::kLong);
  const auto accumulated = [&] { return route(at::zeros({4, 4}).index_put({rows}, x_.detach(), /*accumulate=*/true)); };
  const int64_t varying = saved_bytes(accumulated, "recompute_all");
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  const int64_t deterministic = saved_bytes(accumulated, "recompute_all");
  at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
  EXPECT_EQ(varying - deterministic, kIndices);
}

}  // namespace
}  // namespace ac2::test
