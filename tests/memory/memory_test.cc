// The bytes that a region holds, counted exactly: by its own figures and by LibTorch's allocator.
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "ac2/testing/counting_allocator.h"
#include "tests/support/regions.h"
#include "tests/support/warnings.h"

namespace ac2::test {
namespace {

constexpr int64_t kElements = 1024;
constexpr int64_t kBytes = kElements * 4;

class MemoryTest : public CleanTest {
 protected:
  testing::CountingAllocator& memory_ = testing::CountingAllocator::install();

  // Bytes allocated by fn() and not freed again, and the most at any time.
  std::pair<int64_t, int64_t> held_and_peak(const std::function<void()>& fn) {
    int64_t before = memory_.current_bytes();
    memory_.reset_peak();
    fn();
    return {memory_.current_bytes() - before, memory_.peak_bytes() - before};
  }
  // The same of dy/dx, the gradient itself included.
  std::pair<int64_t, int64_t> backward(const at::Tensor& y, const at::Tensor& x) {
    at::Tensor output_gradient = at::ones_like(y);
    at::Tensor gradient;
    return held_and_peak([&] { gradient = torch::autograd::grad({y}, {x}, {output_gradient})[0]; });
  }
};

TEST_F(MemoryTest, APlainChainHoldsEveryResult) {
  // The standard of the tests below: each result is needed by the next op, or is the output.
  at::Tensor x = sample({kElements});
  at::Tensor y;
  auto [held, peak] = held_and_peak([&] { y = sines(x, 6); });
  EXPECT_EQ(held, 6 * kBytes);
  EXPECT_EQ(peak, 6 * kBytes);
}

TEST_F(MemoryTest, RecomputeAllHoldsTheOutputAloneAndTemporariesDie) {
  at::Tensor x = sample({kElements});
  at::Tensor y;
  PolicyScope scope("recompute_all");
  auto [held, peak] = held_and_peak([&] { y = sines(x, 6); });
  EXPECT_EQ(held, kBytes);                                // y
  EXPECT_EQ(peak, 2 * kBytes);                            // an op's input and its result
  EXPECT_EQ(scope.trace()->stats().saved_bytes, kBytes);  // x, which was there before
}

TEST_F(MemoryTest, BackwardHoldsWhatIsStillNeededAndNothingAfterwards) {
  at::Tensor x = sample({kElements});
  at::Tensor y = apply_ac_policy_fn(sines, "recompute_all", x, 6);
  at::Tensor plain = sines(x, 6);
  auto [held, peak] = backward(y, x);
  auto [plain_held, plain_peak] = backward(plain, x);
  EXPECT_EQ(held, kBytes);  // the gradient
  // Plain, the results of 1 to 5 were there before and are freed on the way; here they come first.
  EXPECT_EQ(plain_held, kBytes - 5 * kBytes);
  EXPECT_EQ(peak, plain_peak + 5 * kBytes);
}

struct Network {
  const char* name;
  at::Tensor (*forward)(const Tensors&);
};

void PrintTo(const Network& network, std::ostream* out) {
  *out << network.name;
}

class EveryNetworkTest : public MemoryTest, public ::testing::WithParamInterface<Network> {
 protected:
  Tensors inputs_ = {sample({8, 16}), sample({16, 16}), sample({16}), sample({2, 4, 6, 6}), sample({4, 4, 3, 3})};
};

TEST_P(EveryNetworkTest, HoldsWhatPlainAutogradHoldsIfAllIsSaved) {
  for (CheckpointPolicy policy : {CheckpointPolicy::MUST_SAVE, CheckpointPolicy::PREFER_SAVE}) {
    SCOPED_TRACE(to_string(policy));
    at::Tensor y;
    auto plain = held_and_peak([&] { y = GetParam().forward(inputs_); });
    y.reset();
    auto region = held_and_peak([&] { y = apply_ac_policy_fn(GetParam().forward, Policy::constant(policy), inputs_); });
    EXPECT_EQ(region.first, plain.first);
    EXPECT_EQ(region.second, plain.second);
    y.reset();
  }
}

TEST_P(EveryNetworkTest, BackwardNeedsAsMuchAsPlainAutogradIfAllIsSaved) {
  auto all_gradients = [&](const at::Tensor& y) {
    Tensors gradients;
    return held_and_peak([&] { gradients = gradients_of({y}, inputs_); });
  };
  auto plain = all_gradients(GetParam().forward(inputs_));
  auto region = all_gradients(apply_ac_policy_fn(GetParam().forward, "must_save_all", inputs_));
  EXPECT_EQ(region, plain);
}

TEST_P(EveryNetworkTest, HoldsNoMoreThanInputsAndOutputIfAllIsRecomputed) {
  int64_t before = memory_.current_bytes();
  at::Tensor y = apply_ac_policy_fn(GetParam().forward, "recompute_all", inputs_);
  EXPECT_EQ(memory_.current_bytes() - before, storage_bytes(y));
  y.reset();
  EXPECT_EQ(memory_.current_bytes(), before);
}

INSTANTIATE_TEST_SUITE_P(
    Of, EveryNetworkTest,
    ::testing::Values(Network{"linear_layers",
                              [](const Tensors& in) {
                                at::Tensor y = at::linear(in[0], in[1], in[2]).tanh();
                                return at::linear(at::gelu(y), in[1], in[2]).sigmoid();
                              }},
                      Network{"writes",
                              [](const Tensors& in) {
                                at::Tensor y = in[0].sin();
                                y.add_(in[2]);
                                y.select(0, 1).mul_(2);
                                y.relu_();
                                return y.cos().mul_(3);
                              }},
                      Network{"normalization",
                              [](const Tensors& in) {
                                at::Tensor y = at::layer_norm(in[0], {16}, in[2], in[2]);
                                return (y.softmax(1) * y).exp();
                              }},
                      Network{"convolution",
                              [](const Tensors& in) {
                                at::Tensor y = at::conv2d(in[3], in[4]).relu_();
                                return at::max_pool2d(y, 2).flatten(1).log_softmax(1);
                              }},
                      Network{"views",
                              [](const Tensors& in) {
                                at::Tensor y = in[0].sin().view({4, 32}).t();
                                return at::cat({y.select(1, 0).cos(), y.slice(0, 1, 3).flatten()}).exp();
                              }},
                      Network{"sorting", [](const Tensors& in) { return std::get<0>(in[0].sin().sort(1)).cos(); }}),
    [](const auto& info) { return info.param.name; });

TEST_F(MemoryTest, SavingAllHoldsNoRandomState) {
  at::Tensor x = sample({kElements});
  auto fn = [&] { return at::dropout(x.sin(), 0.5, true).cos(); };
  at::Tensor y;
  auto plain = held_and_peak([&] { y = fn(); });
  y.reset();
  auto region = held_and_peak([&] { y = apply_ac_policy_fn(fn, "must_save_all"); });
  EXPECT_EQ(region, plain);
}

TEST_F(MemoryTest, ASelectivePolicyHoldsWhatItNames) {
  at::Tensor x = sample({kElements}), w = sample({kElements});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  int64_t before = memory_.current_bytes();
  {
    PolicyScope scope(saving({"aten::exp"}));
    trace = scope.trace();
    y = (x.sin().exp() * w.cos()).sin().sum();
  }
  // exp's result; the others are recomputed from it and from x and w, which were there before.
  EXPECT_EQ(memory_.current_bytes() - before, kBytes + storage_bytes(y));
  EXPECT_EQ(trace->stats().saved_bytes, 3 * kBytes);
  gradients_of({y}, {x, w});
  EXPECT_EQ(trace->stats().recomputed_ops, 2);  // cos and the product; sin only led to exp
}

TEST_F(MemoryTest, AnInputIsCountedOnceHoweverManyOpsNeedIt) {
  at::Tensor x = sample({kElements});
  PolicyScope scope("recompute_all");
  at::Tensor y = x.sin() + x.cos() * x + x.view({2, -1}).t().exp().flatten();
  EXPECT_EQ(scope.trace()->stats().saved_bytes, kBytes);
}

TEST_F(MemoryTest, WhatIsHeldShrinksAsBackwardProceeds) {
  at::Tensor x = sample({kElements});
  std::vector<int64_t> saved;
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("must_save_all");
    trace = scope.trace();
    y = x;
    for (int i = 0; i < 4; ++i) {
      y = y.sin();
      y.register_hook([&](const at::Tensor& g) {
        saved.push_back(trace->stats().saved_bytes);
        return g;
      });
    }
  }
  gradient_of(y, x);
  // x and three results at first; each backward without retain_graph frees the one it used.
  EXPECT_EQ(saved, (std::vector<int64_t>{4 * kBytes, 3 * kBytes, 2 * kBytes, 1 * kBytes}));
  EXPECT_EQ(trace->stats().saved_bytes, 0);
}

TEST_F(MemoryTest, AdjacentRegionsHoldTheirInputsAlone) {
  at::Tensor x = sample({kElements});
  at::Tensor y = x;
  auto [held, peak] = held_and_peak([&] {
    for (int i = 0; i < 5; ++i) y = apply_ac_policy_fn(sines, "recompute_all", y, 4);
  });
  EXPECT_EQ(held, 5 * kBytes);  // the four results in between, each the next one's input; and y
  at::Tensor plain = sines(x, 20);
  // Never more than one region's three results at a time.
  EXPECT_EQ(backward(y, x).second, backward(plain, x).second + 3 * kBytes);
}

// The warning is given once in a process, so all that brings none comes first.
TEST_F(MemoryTest, ARegionThatBackwardHasThereAtOnceIsWarnedOfOnceAndNoOther) {
  constexpr int64_t kLarge = 1 << 20;  // 4 MiB
  const at::Tensor x = sample({kLarge});
  const auto region = [](const at::Tensor& t, int n, const Policy& policy = "recompute_all",
                         const ScopeOptions& options = {}) {
    PolicyScope scope(policy, options);
    return sines(t, n);
  };
  const Warnings warnings;
  gradient_of(region(region(x, 6), 6), x);
  EXPECT_TRUE(warnings.messages.empty()) << "regions around blocks";
  gradient_of(sines(region(x, 6), 12), x);
  EXPECT_TRUE(warnings.messages.empty()) << "a region around a block that others follow";
  gradient_of(region(x, 6, "recompute_all", {.memory_budget = 3 * 4 * kLarge}), x);
  EXPECT_TRUE(warnings.messages.empty()) << "a memory budget";
  gradient_of(region(x, 6, "recompute_all", {.memory_budget = int64_t{1} << 40}), x);
  EXPECT_TRUE(warnings.messages.empty()) << "a budget that is too large, under which all is kept";
  gradient_of(region(x, 6, "recompute_all", {.memory_budget = whatever_fits()}), x);
  EXPECT_TRUE(warnings.messages.empty()) << "whatever fits, under which all is kept";
  const Policy must = Policy::constant(CheckpointPolicy::MUST_RECOMPUTE);
  gradient_of(region(x, 6, must, {.memory_budget = 7 * 4 * kLarge}), x);
  EXPECT_TRUE(warnings.messages.empty()) << "a budget that was meant for as much";
  int64_t ops = 0;
  const auto save_every_other = [&ops](const OpContext& /*op*/) {
    return ++ops % 2 == 0 ? CheckpointPolicy::MUST_SAVE : CheckpointPolicy::PREFER_RECOMPUTE;
  };
  gradient_of(region(x, 12, save_every_other), x);
  EXPECT_TRUE(warnings.messages.empty()) << "little replayed at once";
  gradient_of(region(x, 4), x);
  EXPECT_TRUE(warnings.messages.empty()) << "12 MiB";
  gradient_of(region(x, 6), x);
  ASSERT_EQ(warnings.messages.size(), 1);
  EXPECT_NE(warnings.messages[0].find("had 20 MiB of one ac2 region replayed at once"), std::string::npos)
      << warnings.messages[0];
  EXPECT_NE(warnings.messages[0].find("memory budget"), std::string::npos);
  gradient_of(region(x, 6), x);
  EXPECT_EQ(warnings.messages.size(), 1);
}

}  // namespace
}  // namespace ac2::test
