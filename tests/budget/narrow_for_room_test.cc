// A memory budget that may pack values into a narrower form (ScopeOptions::forms) where it has no room for
// them.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ac2/form.h"
#include "ac2/memory_budget.h"
#include "ac2/scope.h"
#include "tests/support/forms.h"
#include "tests/support/regions.h"
#include "tests/support/warnings.h"

namespace ac2::test {
namespace {

constexpr int64_t kSide = 512;
constexpr int64_t kMatrix = kSide * kSide * 4;  // bytes: a product costs more than packing it, and tanh alone less
constexpr int kLayers = 12;

// Saves half of the bits, and counts.
struct Halves {
  std::shared_ptr<int> packed = std::make_shared<int>(0);
  std::shared_ptr<int> unpacked = std::make_shared<int>(0);

  FormPtr form() const {
    return form_of({[packed = packed](const at::Tensor& tensor) -> c10::IValue {
                      ++*packed;
                      return tensor.to(at::kHalf);
                    },
                    [unpacked = unpacked](const c10::IValue& packed) {
                      ++*unpacked;
                      return packed.toTensor().to(at::kFloat);
                    }});
  }
};

class NarrowForRoomTest : public CleanTest {
 protected:
  struct Step {
    at::Tensor gradient;
    TraceStats forward;
    TraceStats backward;
  };

  // Backward needs each tanh's result, which takes a product to compute again.
  at::Tensor products(at::Tensor x) const {
    for (int i = 0; i < kLayers; ++i) x = x.mm(w_).tanh();
    return x;
  }
  at::Tensor product_step(at::Tensor x) const { return products(x).sum(); }

  Step step(const std::optional<ScopeOptions>& options) const {
    Step step;
    std::shared_ptr<const Trace> trace;
    at::Tensor loss;
    {
      std::optional<PolicyScope> scope;
      if (options) trace = scope.emplace(*options).trace();
      loss = product_step(x_);
    }
    if (trace) step.forward = trace->stats();
    step.gradient = torch::autograd::grad({loss}, {x_})[0];
    if (trace) step.backward = trace->stats();
    return step;
  }
  static ScopeOptions narrowing(int64_t matrices, FormPtr form) {
    return {.memory_budget = MemoryBudget(matrices * kMatrix, /*modelled_costs=*/true), .forms = {std::move(form)}};
  }
  static double distance(const at::Tensor& a, const at::Tensor& b) {
    return ((a - b).norm() / b.norm()).item<double>();
  }

  const at::Tensor w_ = at::randn({kSide, kSide}).mul(1 / std::sqrt(static_cast<double>(kSide)));
  const at::Tensor x_ = at::randn({kSide, kSide}).requires_grad_();
};

TEST_F(NarrowForRoomTest, PacksAValueThatWouldTakeLongerToComputeAgain) {
  const Step plain = step(std::nullopt);
  const Step narrowed = step(narrowing(8, forms::quantized(8)));
  EXPECT_GT(narrowed.forward.packed_values, 0);
  EXPECT_FALSE(same_bits(narrowed.gradient, plain.gradient));
  EXPECT_LT(distance(narrowed.gradient, plain.gradient), 0.02);
  const Step dropped = step(ScopeOptions{.memory_budget = MemoryBudget(8 * kMatrix, /*modelled_costs=*/true)});
  EXPECT_LT(narrowed.backward.recomputed_ops, dropped.backward.recomputed_ops);
  EXPECT_EQ(dropped.backward.packed_values, 0);
}

TEST_F(NarrowForRoomTest, DropsAValueThatIsSoonComputedAgain) {
  const auto cosines = [&](const std::optional<ScopeOptions>& options, TraceStats* stats) {
    std::optional<PolicyScope> scope;
    std::shared_ptr<const Trace> trace;
    if (options) trace = scope.emplace(*options).trace();
    at::Tensor y = x_;
    for (int i = 0; i < kLayers; ++i) y = y.cos();
    scope.reset();
    const at::Tensor gradient = torch::autograd::grad({y.sum()}, {x_})[0];
    if (trace) *stats = trace->stats();
    return gradient;
  };
  TraceStats stats;
  const at::Tensor plain = cosines(std::nullopt, nullptr);
  EXPECT_TRUE(same_bits(cosines(narrowing(8, forms::quantized(8)), &stats), plain));
  EXPECT_GT(stats.recomputed_ops, 0);
  EXPECT_EQ(stats.packed_values, 0);
}

TEST_F(NarrowForRoomTest, IsExactWhileThereIsRoom) {
  const Step step = this->step(narrowing(40, forms::quantized(8)));
  EXPECT_TRUE(same_bits(step.gradient, this->step(std::nullopt).gradient));
  EXPECT_EQ(step.backward.packed_values, 0);
}

TEST_F(NarrowForRoomTest, AnyFormMayBeGiven) {
  const Halves halves;
  const Step step = this->step(narrowing(9, halves.form()));
  EXPECT_EQ(step.backward.packed_values, *halves.packed);
  EXPECT_GT(*halves.unpacked, 0);
  EXPECT_LT(distance(step.gradient, this->step(std::nullopt).gradient), 1e-2);
}

TEST_F(NarrowForRoomTest, ATightBudgetDropsForms) {
  const Step plain = step(std::nullopt);
  const Step tight = step(narrowing(4, forms::quantized(8)));
  EXPECT_GT(tight.backward.packed_values, 0);
  EXPECT_GT(tight.backward.recomputed_ops, 0);
  EXPECT_LT(distance(tight.gradient, plain.gradient), 0.1);
}

TEST_F(NarrowForRoomTest, ABudgetThatIsMetWithoutFormsIsMetWithThem) {
  for (const int64_t matrices : {3, 5}) {
    EXPECT_NO_THROW(step(ScopeOptions{.memory_budget = MemoryBudget(matrices * kMatrix, true)})) << matrices;
    EXPECT_NO_THROW(step(narrowing(matrices, forms::quantized(8)))) << matrices;
    EXPECT_NO_THROW(step(narrowing(matrices, Halves().form()))) << matrices;
  }
}

TEST_F(NarrowForRoomTest, WhatPackRefusesIsDropped) {
  const Step plain = step(std::nullopt);
  const auto unpack = [](const c10::IValue& packed) { return packed.toTensor(); };
  const Step none = step(narrowing(8, form_of({[](const at::Tensor&) { return c10::IValue(); }, unpack})));
  EXPECT_TRUE(same_bits(none.gradient, plain.gradient));
  EXPECT_EQ(none.backward.packed_values, 0);
  EXPECT_GT(none.backward.evicted_values, 0);
  const Step no_fewer = step(narrowing(8, form_of({[](const at::Tensor& tensor) { return tensor.clone(); }, unpack})));
  EXPECT_TRUE(same_bits(no_fewer.gradient, plain.gradient));
  EXPECT_EQ(no_fewer.backward.packed_values, 0);
}

TEST_F(NarrowForRoomTest, WhatMustBeSavedStaysExact) {
  const Halves halves;
  at::Tensor loss;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope(narrowing(9, halves.form()));
    trace = scope.trace();
    at::Tensor y = x_;
    for (int i = 0; i < kLayers; ++i) {
      y = y.mm(w_).tanh();
      if (i < 4) tag_with_policy(y, CheckpointPolicy::MUST_SAVE);
    }
    loss = y.sum();
  }
  EXPECT_GT(trace->stats().packed_values, 0);
  // Of the twelve, four must be saved, and what is left of nine takes some of the others as they are.
  EXPECT_LE(*halves.packed, kLayers - 4);
  const at::Tensor gradient = torch::autograd::grad({loss}, {x_})[0];
  EXPECT_LT(distance(gradient, step(std::nullopt).gradient), 1e-2);
}

TEST_F(NarrowForRoomTest, AnErrorOfPackReachesTheProgram) {
  const MemoryBudget budget(8 * kMatrix, /*modelled_costs=*/true);
  const SaveWithHooks broken = {[](const at::Tensor&) -> c10::IValue { throw std::runtime_error("no ink"); },
                                [](const c10::IValue& packed) { return packed.toTensor(); }};
  try {
    PolicyScope scope({.memory_budget = budget, .forms = {form_of(broken)}});
    product_step(x_);
    FAIL() << "pack was not called";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "no ink");
  }
  EXPECT_EQ(budget.held_bytes(), 0);
}

TEST_F(NarrowForRoomTest, AGraphIsWalkedTwiceAndLeavesNothing) {
  const MemoryBudget budget(8 * kMatrix, /*modelled_costs=*/true);
  at::Tensor loss;
  {
    PolicyScope scope({.memory_budget = budget, .forms = {forms::quantized(8)}});
    loss = product_step(x_);
  }
  const at::Tensor first = torch::autograd::grad({loss}, {x_}, {}, /*retain_graph=*/true)[0];
  const at::Tensor second = torch::autograd::grad({loss}, {x_})[0];
  EXPECT_LT(distance(second, first), 0.02);
  loss.reset();
  EXPECT_EQ(budget.held_bytes(), 0);
}

TEST_F(NarrowForRoomTest, AValueThatIsWrittenToAfterwardsHasItsOldNumbers) {
  const auto program = [&] {
    at::Tensor y = x_.mm(w_).tanh();
    at::Tensor z = products(y);
    y.detach().zero_();
    return z.mm(w_).sum();
  };
  const at::Tensor exact = [&] {
    PolicyScope scope(CheckpointPolicy::MUST_SAVE);
    const at::Tensor loss = program();
    return torch::autograd::grad({loss}, {x_})[0];
  }();
  PolicyScope scope(narrowing(6, forms::quantized(8)));
  const at::Tensor loss = program();
  EXPECT_GT(scope.trace()->stats().packed_values, 0);
  EXPECT_LT(distance(torch::autograd::grad({loss}, {x_})[0], exact), 0.05);
}

TEST_F(NarrowForRoomTest, RoundingFollowsFromTheSeed) {
  const auto packed = [&](uint64_t seed) {
    const FormPtr form = forms::quantized(8, seed);
    return form->unpack(form->pack(w_));
  };
  EXPECT_TRUE(same_bits(packed(3), packed(3)));
  EXPECT_FALSE(same_bits(packed(3), packed(4)));
}

TEST_F(NarrowForRoomTest, ThreadsShareABudget) {
  const MemoryBudget budget(16 * kMatrix, /*modelled_costs=*/true);
  const at::Tensor plain = step(std::nullopt).gradient;
  std::vector<at::Tensor> gradients(2);
  std::vector<std::thread> threads;
  for (at::Tensor& gradient : gradients) {
    threads.emplace_back([&] {
      at::Tensor x = x_.detach().clone().requires_grad_();
      for (int round = 0; round < 3; ++round) {
        at::Tensor loss;
        {
          const PolicyScope scope({.memory_budget = budget, .forms = {forms::quantized(8)}});
          loss = product_step(x);
        }
        gradient = torch::autograd::grad({loss}, {x})[0];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const at::Tensor& gradient : gradients) EXPECT_LT(distance(gradient, plain), 0.1);
  EXPECT_EQ(budget.held_bytes(), 0);
}

TEST_F(NarrowForRoomTest, VerifyModeExemptsWhatWasPacked) {
  ScopeOptions options = narrowing(5, forms::quantized(8));
  options.verify = true;
  EXPECT_LT(distance(step(options).gradient, step(std::nullopt).gradient), 0.1);
}

TEST_F(NarrowForRoomTest, FormsWithAPolicyAndWithoutABudgetAreAnError) {
  expect_error([] { const PolicyScope scope("recompute_all", {.forms = {forms::quantized(8)}}); },
               {"(ScopeOptions::forms; in Python forms=) would have no effect"});
  EXPECT_FALSE(is_checkpoint_enabled());
}

TEST_F(NarrowForRoomTest, ANullFormAndOneThatIsThereTwiceAreErrors) {
  const auto open = [](Forms forms) {
    const PolicyScope scope({.memory_budget = MemoryBudget(kMatrix), .forms = std::move(forms)});
  };
  expect_error([&] { open({nullptr}); }, {"ScopeOptions::forms has a null pointer as its form 0"});
  expect_error(
      [&] {
        open({forms::quantized(8), forms::one_bit(), forms::quantized(8)});
      },
      {"has the form \"quantized 8 bits, seed 0\" twice"});
  EXPECT_THROW(forms::quantized(1), c10::Error);
  EXPECT_THROW(forms::quantized(16), c10::Error);
}

}  // namespace
}  // namespace ac2::test
