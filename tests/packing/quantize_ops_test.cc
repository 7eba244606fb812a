// Results saved in fewer bits: how close they come back, in how many bytes, and what stays exact.
#include "policies/quantize_ops.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "policies/composed_policies.h"
#include "policies/listed_ops.h"
#include "tests/support/packed.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using policies::quantize_ops;

using QuantizeOpsTest = CleanTest;

constexpr int64_t kBlock = 256;
constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};

SaveWithHooks quantizing(int64_t bits, const char* op = "aten::sin", uint64_t seed = 0) {
  return hooks_of(quantize_ops({op}, bits, {.seed = seed}), op);
}

// Half the distance of neighbours at 1.
double rounding_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return 0x1p-53;
    case at::kFloat:
      return 0x1p-24;
    case at::kHalf:
      return 0x1p-11;
    default:
      return 0x1p-8;
  }
}

// The form that docs/quantisation.md gives for a block with these ends.
double bound(double low, double high, int64_t bits, at::ScalarType type) {
  const double step = (high - low) / static_cast<double>((1 << bits) - 1);
  const double greatest = std::max(std::abs(low), std::abs(high));
  // Of the arithmetic, which is float's for half and bfloat16, and of the result. Denormals have a least distance.
  const double computed = type == at::kDouble ? 0x1p-53 : 0x1p-24;
  const double least = type == at::kHalf ? 0x1p-25 : 0;
  return step * (1 + 1024 * computed) + greatest * (4 * computed + rounding_of(type)) + least;
}

struct Kind {
  const char* name;
  std::function<at::Tensor(int64_t)> make;  // in double
};

const std::vector<Kind>& kinds() {
  static const auto& all = *new std::vector<Kind>{
      {"normal", [](int64_t n) { return constant({n}, at::kDouble); }},
      {"small range far from zero", [](int64_t n) { return constant({n}, at::kDouble).mul(1e-3).add(1000); }},
      {"constant", [](int64_t n) { return at::full({n}, 0.3, at::kDouble); }},
      {"zeros", [](int64_t n) { return at::zeros({n}, at::kDouble); }},
      {"relu", [](int64_t n) { return constant({n}, at::kDouble).relu(); }},
      {"denormals of float", [](int64_t n) { return constant({n}, at::kDouble).mul(1e-40); }},
      {"huge", [](int64_t n) { return constant({n}, at::kDouble).mul(1e4); }},
      {"one outlier",
       [](int64_t n) {
         at::Tensor x = constant({n}, at::kDouble);
         x[n / 2] = 60000;
         return x;
       }},
      {"many magnitudes", [](int64_t n) { return constant({n}, at::kDouble).mul(4).exp().mul(1e-3).clamp_max(6e4); }},
      {"ramp", [](int64_t n) { return at::arange(n, at::kDouble).sub(100).mul(0.9); }},
  };
  return all;
}

TEST_F(QuantizeOpsTest, StaysWithinTheBoundOfEachBlock) {
  for (const at::ScalarType type : kTypes) {
    for (const int64_t bits : {8, 4}) {
      const SaveWithHooks hooks = quantizing(bits);
      for (const Kind& kind : kinds()) {
        for (const int64_t n : {1, 2, 3, 255, 256, 257, 1000, 70001}) {
          SCOPED_TRACE(std::string(kind.name) + ", " + toString(type) + ", " + std::to_string(bits) + " bits, " +
                       std::to_string(n));
          const at::Tensor x = kind.make(n).to(type);
          const at::Tensor back = hooks.unpack(hooks.pack(x));
          ASSERT_EQ(back.scalar_type(), type);
          const at::Tensor exact = x.to(at::kDouble), close = back.to(at::kDouble);
          for (int64_t begin = 0; begin < n; begin += kBlock) {
            const at::Tensor block = exact.slice(0, begin, begin + kBlock);
            const double low = block.min().item<double>(), high = block.max().item<double>();
            const double error = (close.slice(0, begin, begin + kBlock) - block).abs().max().item<double>();
            ASSERT_LE(error, bound(low, high, bits, type)) << "block at " << begin << ", " << low << " to " << high;
          }
        }
      }
    }
  }
}

TEST_F(QuantizeOpsTest, TheEndsOfABlockAndTwoValuesAreExact) {
  for (const int64_t bits : {8, 4}) {
    const SaveWithHooks hooks = quantizing(bits);
    const at::Tensor x = constant({1000});
    const at::Tensor back = hooks.unpack(hooks.pack(x));
    for (int64_t begin = 0; begin < 1000; begin += kBlock) {
      const at::Tensor block = x.slice(0, begin, begin + kBlock), close = back.slice(0, begin, begin + kBlock);
      EXPECT_TRUE(at::equal(close.min(), block.min()));
      EXPECT_TRUE(at::equal(close.max(), block.max()));
    }
    at::Tensor two_a_block = at::empty({2, kBlock});
    two_a_block[0] = at::where(constant({kBlock}) > 0, 0.1, 1.7);
    two_a_block[1] = at::where(constant({kBlock}) > 0, -3.3, 1e-3);
    EXPECT_TRUE(same_bits(hooks.unpack(hooks.pack(two_a_block)), two_a_block));
  }
}

TEST_F(QuantizeOpsTest, RoundingIsUnbiased) {
  // The sum of n independent errors, each within a step of 0 and of variance at most step²/4.
  constexpr int kDraws = 4000;
  const at::Tensor x = constant({kBlock});
  for (const int64_t bits : {8, 4}) {
    const double step = (x.max() - x.min()).item<double>() / ((1 << bits) - 1);
    const SaveWithHooks hooks = quantizing(bits);
    at::Tensor sum = at::zeros({kBlock}, at::kDouble);
    for (int i = 0; i < kDraws; ++i) sum += hooks.unpack(hooks.pack(x)).to(at::kDouble) - x.to(at::kDouble);
    // Six standard deviations for each number, and for all of them together; what float's arithmetic adds is far less.
    const double of_one = 6 * step / 2 / std::sqrt(kDraws);
    EXPECT_LE((sum / kDraws).abs().max().item<double>(), of_one);
    EXPECT_LE((sum / kDraws).mean().abs().item<double>(), of_one / std::sqrt(double(kBlock)));
    // And it is random: the mean of a rounding to the nearest would stay.
    const at::Tensor once = hooks.unpack(hooks.pack(x)).to(at::kDouble) - x.to(at::kDouble);
    EXPECT_GT(once.abs().max().item<double>(), of_one);
  }
}

TEST_F(QuantizeOpsTest, BlocksWithoutAFiniteRangeAreKeptAsTheyAre) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const at::ScalarType type : kTypes) {
    for (const int64_t bits : {8, 4}) {
      const SaveWithHooks hooks = quantizing(bits);
      at::Tensor x = constant({5 * kBlock + 10}, type);
      x[kBlock] = std::nan("");
      x[3 * kBlock - 1] = kInfinity;
      x[5 * kBlock + 3] = -kInfinity;
      const c10::IValue packed = hooks.pack(x);
      const at::Tensor back = hooks.unpack(packed);
      const auto block = [](const at::Tensor& t, int64_t i) { return t.slice(0, i * kBlock, (i + 1) * kBlock); };
      for (const int64_t i : {1, 2, 5}) EXPECT_TRUE(same_bits(block(back, i), block(x, i))) << i;
      for (const int64_t i : {0, 3, 4}) EXPECT_FALSE(at::equal(block(back, i), block(x, i))) << i;
      const int64_t element = x.element_size();
      const int64_t range = type == at::kDouble ? 16 : 8;
      EXPECT_EQ(packed_bytes(packed), (x.numel() * bits + 7) / 8 + 6 * range + (2 * kBlock + 10) * element);
    }
  }
  // The range overflows, or its inverse does.
  for (const double scale : {3e38, 1e-44}) {
    const at::Tensor x = at::linspace(-1, 1, kBlock, at::kDouble).mul(scale).to(at::kFloat);
    const SaveWithHooks hooks = quantizing(8);
    EXPECT_TRUE(same_bits(hooks.unpack(hooks.pack(x)), x)) << scale;
  }
}

TEST_F(QuantizeOpsTest, LayoutsComeBack) {
  const at::Tensor base = constant({2, 3, 5, 7});
  for (const int64_t bits : {8, 4, 1}) {
    const SaveWithHooks hooks = quantizing(bits, "aten::relu");
    for (const at::Tensor& x : {base.contiguous(at::MemoryFormat::ChannelsLast), base.permute({3, 1, 0, 2}),
                                base.transpose(1, 2), constant({}), constant({0}), constant({4, 0, 3})}) {
      at::Tensor back;
      if (bits == 1) {
        const at::Tensor mask = x > 0;
        back = hooks.unpack(hooks.pack(mask));
        EXPECT_TRUE(at::equal(back, mask));
      } else {
        back = hooks.unpack(hooks.pack(x));
        EXPECT_TRUE(at::allclose(back, x, 0, bits == 8 ? 0.05 : 0.6));
      }
      EXPECT_EQ(back.sizes(), x.sizes());
      EXPECT_EQ(back.strides(), x.strides());
    }
    // With gaps: the numbers, and the sizes.
    const at::Tensor gaps = (base > 0).slice(3, 0, 7, 2);
    EXPECT_TRUE(at::equal(hooks.unpack(hooks.pack(gaps)), gaps));
  }
}

TEST_F(QuantizeOpsTest, MasksTakeOneBitAndAreExact) {
  const at::Tensor chosen = constant({1001}) > 0.3;
  for (const int64_t bits : {8, 4, 1}) {
    const SaveWithHooks hooks = quantizing(bits);
    for (const at::ScalarType type : {at::kBool, at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
      // As dropout makes it: 0 and 1/(1-p).
      const at::Tensor mask = type == at::kBool ? chosen : chosen.to(type).div_(0.9);
      const c10::IValue packed = hooks.pack(mask);
      EXPECT_EQ(packed_bytes(packed), 126) << toString(type);
      EXPECT_TRUE(same_bits(hooks.unpack(packed), mask)) << toString(type);
    }
    const at::Tensor odd = at::where(chosen, std::nan(""), -0.0);
    EXPECT_TRUE(same_bits(hooks.unpack(hooks.pack(odd)), odd));
    at::Tensor third_value_at_the_end = chosen.to(at::kFloat);
    third_value_at_the_end[1000] = 0.5;
    const c10::IValue packed = hooks.pack(third_value_at_the_end);
    EXPECT_EQ(packed.isNone(), bits == 1);
    EXPECT_TRUE(bits == 1 || !same_bits(hooks.unpack(packed), third_value_at_the_end));
  }
}

TEST_F(QuantizeOpsTest, CodesDoNotDependOnTheNumberOfThreads) {
  const at::Tensor x = constant({1'000'000});
  const int before = at::get_num_threads();
  for (const int64_t bits : {8, 4}) {
    at::set_num_threads(1);
    const SaveWithHooks one = quantizing(bits), two = quantizing(bits);
    const at::Tensor expected = one.unpack(one.pack(x));
    at::set_num_threads(2);
    EXPECT_TRUE(same_bits(two.unpack(two.pack(x)), expected));
    at::set_num_threads(before);
  }
}

// The gradients that a region under `policy` gives for the same input each time.
at::Tensor gradient_under(const Policy& policy) {
  at::Tensor x = at::linspace(-2, 2, 1000).requires_grad_();
  at::Tensor y = apply_ac_policy_fn([&] { return x.sin().cos(); }, policy);
  return gradient_of(y, x);
}

TEST_F(QuantizeOpsTest, TheSameProgramHasTheSameGradientsAndDrawsNothingOfTheUsers) {
  const auto program = [](uint64_t seed) {
    const Policy policy = quantize_ops({"aten::sin"}, 4, {.seed = seed});
    return Tensors{gradient_under(policy), gradient_under(policy)};
  };
  const at::Tensor before = generator_state();
  const Tensors first = program(0), second = program(0), other = program(7);
  EXPECT_TRUE(at::equal(generator_state(), before));
  expect_same_bits(second, first, "gradients");
  // A region after another rounds anew, and so does another seed.
  EXPECT_FALSE(at::equal(first[1], first[0]));
  EXPECT_FALSE(at::equal(other[0], first[0]));
}

TEST_F(QuantizeOpsTest, TheErrorOfAGradientFollowsFromThatOfTheResult) {
  // d cos(s) = -sin(s) ds: within |g| times the bound of s, since sin has slope 1 at most.
  for (const int64_t bits : {8, 4}) {
    at::Tensor x = sample({1000});
    at::Tensor y = apply_ac_policy_fn([&] { return x.sin().cos(); }, quantize_ops({"aten::sin"}, bits));
    at::Tensor s = x.detach().sin();
    at::Tensor plain = gradient_of(x.sin().cos(), x), gradient = gradient_of(y, x);
    EXPECT_FALSE(at::equal(gradient, plain));
    EXPECT_LE((gradient - plain).abs().max().item<double>(), bound(-1, 1, bits, at::kFloat) + 1e-6);
  }
}

TEST_F(QuantizeOpsTest, HoldsTheBytesOfTheCodesAndRanges) {
  for (const auto& [bits, code_bytes] : {std::pair{8, 1000}, std::pair{4, 500}}) {
    at::Tensor x = sample({1000});
    at::Tensor y;
    {
      PolicyScope scope(quantize_ops({"aten::sin"}, bits));
      y = x.sin().cos();
      // x for sin itself; codes and four ranges for cos.
      EXPECT_EQ(scope.trace()->stats().saved_bytes, 4000 + code_bytes + 4 * 8);
    }
    gradient_of(y, x);
  }
}

// Bytes held for backward by a region around `forward`, once it is closed.
int64_t held_after(const std::function<void()>& forward, const Policy& policy) {
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope(policy);
    trace = scope.trace();
    forward();
  }
  return trace->stats().saved_bytes;
}

TEST_F(QuantizeOpsTest, OneBitOfAReluIsExact) {
  for (const at::ScalarType type : kTypes) {
    for (const bool in_place : {false, true}) {
      at::Tensor x = sample({1001}, type);
      {
        const at::NoGradGuard no_grad;
        x[3] = std::nan("");
        x[4] = 0;
        x[5] = -0.0;
      }
      const auto fn = [&](const at::Tensor& h) { return (in_place ? h.relu_() : h.relu()) * 3; };
      at::Tensor h = x * 2, y;
      EXPECT_EQ(held_after([&] { y = fn(h); }, quantize_ops({"aten::relu", "aten::relu_"}, 1)), 126);
      at::Tensor gradient = gradient_of(y, x, /*retain_graph=*/true);
      EXPECT_TRUE(same_bits(gradient, gradient_of(fn(x * 2), x)));
      EXPECT_TRUE(same_bits(gradient_of(y, x), gradient));
    }
  }
}

TEST_F(QuantizeOpsTest, OneBitOfAReluThatSomethingElseNeedsIsAnErrorThatNamesIt) {
  at::Tensor x = sample({8, 8}), w = sample({8, 8});
  const auto gradients = [&](const char* op, int64_t bits) {
    at::Tensor y;
    {
      PolicyScope scope(quantize_ops({op}, bits));
      y = at::mm(x.relu(), w);
    }
    return gradients_of({y}, {x, w});
  };
  expect_error([&] { gradients("aten::relu", 1); },
               {"quantize_ops with 1 bit", "aten::relu", "MmBackward0 needs the numbers", "8 or 4 bits"});
  expect_next_region_works();
  EXPECT_TRUE(gradients("aten::relu", 8)[0].defined());
}

TEST_F(QuantizeOpsTest, OneBitOfAReluIsNotEnoughForAReplay) {
  // relu_ is not listed: its result is computed again, from the numbers of relu's. Its gradient is a ReLU's too.
  at::Tensor x = sample({100});
  at::Tensor y = apply_ac_policy_fn([&] { return x.relu().sin().relu_() * 3; }, quantize_ops({"aten::relu"}, 1));
  expect_error([&] { gradient_of(y, x); }, {"quantize_ops with 1 bit", "aten::relu", "needs the numbers"});
  // Nor where no gradient is asked of the ReLU itself.
  at::Tensor w = sample({100});
  at::Tensor z = apply_ac_policy_fn([&] { return x.detach().relu() * w; }, quantize_ops({"aten::relu"}, 1));
  expect_error([&] { gradient_of(z, w); }, {"quantize_ops with 1 bit", "MulBackward0 needs the numbers"});
  // Branches: the ReLU's own gradient first would make it 0 and 1 for the product.
  at::Tensor both = apply_ac_policy_fn(
      [&] {
        at::Tensor r = (x * 2).relu();
        return (r.detach() * w).sin().cos() + r;
      },
      quantize_ops({"aten::relu"}, 1));
  expect_error([&] { gradients_of({both}, {x, w}); }, {"quantize_ops with 1 bit", "needs the numbers"});
  expect_next_region_works();
}

TEST_F(QuantizeOpsTest, DropoutsMaskTakesOneBitAndIsExact) {
  const auto fn = [](const Tensors& in) { return Tensors{at::dropout(in[0], 0.1, true) * 2}; };
  const Policy policy = quantize_ops({"aten::bernoulli_", "aten::div_"}, 1);
  expect_same_gradients_and_replays(fn, {sample({1000})}, 0, policy);
  at::Tensor x = sample({1000}), y;
  EXPECT_EQ(held_after([&] { y = fn({x})[0]; }, policy), 125);
}

TEST_F(QuantizeOpsTest, ComparisonsTakeOneBit) {
  const auto fn = [](const Tensors& in) { return Tensors{at::where(in[0] > in[1], in[0], in[1])}; };
  const Policy policy = quantize_ops({"aten::gt"}, 1);
  expect_same_gradients_and_replays(fn, {sample({1000}), sample({1000})}, 0, policy);
  at::Tensor a = sample({1000}), b = sample({1000}), y;
  EXPECT_EQ(held_after([&] { y = fn({a, b})[0]; }, policy), 125);
}

TEST_F(QuantizeOpsTest, IntegersAreKeptExactEvenIfTheyAreOverwritten) {
  for (const int64_t bits : {8, 4, 1}) {
    const auto fn = [](const Tensors& in) {
      auto [values, indices] = in[0].sort();
      at::Tensor chosen = indices.slice(0, 0, 10);
      at::Tensor result = in[0].index_select(0, chosen) * 2 + values.slice(0, 0, 10);
      return Tensors{result};
    };
    expect_same_gradients_and_replays(fn, {sample({100})}, 0, quantize_ops({"aten::sort"}, bits));
    // PyTorch has no error to give here: what was packed is a copy.
    at::Tensor x = sample({100}), y;
    {
      PolicyScope scope(quantize_ops({"aten::sort"}, bits));
      auto [values, indices] = x.sort();
      EXPECT_EQ(scope.trace()->stats().saved_bytes, 100 * 8);
      indices.zero_();
      y = values;
    }
    EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(std::get<0>(x.sort()), x)));
  }
}

TEST_F(QuantizeOpsTest, ComplexResultsAreKeptExact) {
  const auto fn = [](const Tensors& in) { return Tensors{at::real(in[0].sin().cos())}; };
  expect_same_gradients_and_replays(fn, {sample({100}, at::kComplexFloat)}, 0, quantize_ops({"aten::sin"}, 8));
}

TEST_F(QuantizeOpsTest, WhatIsOverwrittenAfterwardsWasPackedBefore) {
  const auto run = [](bool overwrite) {
    at::Tensor x = at::linspace(-1, 1, 500).requires_grad_();
    at::Tensor y;
    {
      PolicyScope scope(quantize_ops({"aten::sin"}, 8));
      at::Tensor s = x.sin();
      y = s.cos();
      if (overwrite) s.detach().zero_();
    }
    return gradient_of(y, x);
  };
  EXPECT_TRUE(same_bits(run(true), run(false)));
}

TEST_F(QuantizeOpsTest, ScopesOfThePolicyNest) {
  const Policy policy = quantize_ops({"aten::sin"}, 8);
  const auto run = [&](const Policy& outer, const Policy& inner) {
    at::Tensor x = sample({100});
    PolicyScope outer_scope(outer);
    PolicyScope inner_scope(inner);
    return gradient_of(x.sin().cos(), x);
  };
  run(policy, policy);
  run(policy, "recompute_all");
  expect_error([&] { run(policy, quantize_ops({"aten::sin"}, 8)); }, {"Conflicting policies", "aten::sin"});
  expect_next_region_works();
}

TEST_F(QuantizeOpsTest, ComposesWithOtherPolicies) {
  at::Tensor x = sample({256}), y;
  const Policy policy = policies::first_of({quantize_ops({"aten::sin"}, 8), policies::save_ops({"aten::*"})});
  // x, sin's result in codes and a range, and that of cos as it is.
  EXPECT_EQ(held_after([&] { y = x.sin().cos().sinh(); }, policy), 1024 + 256 + 8 + 1024);
  gradient_of(y, x);
}

TEST_F(QuantizeOpsTest, VerifyModeTakesItForWhatItIs) {
  at::Tensor x = sample({1000});
  at::Tensor y;
  {
    PolicyScope scope(quantize_ops({"aten::sin"}, 8), {.verify = true});
    y = x.sin().cos().tan();
  }
  gradient_of(y, x);
}

TEST_F(QuantizeOpsTest, SecondDerivativesGoThroughIt) {
  at::Tensor x = sample({300}, at::kDouble);
  const auto second = [&](const at::Tensor& y) {
    at::Tensor first = torch::autograd::grad({y.sum()}, {x}, {}, true, /*create_graph=*/true)[0];
    return torch::autograd::grad({first.sum()}, {x})[0];
  };
  at::Tensor plain = second(x.sin().cos());
  at::Tensor close = second(apply_ac_policy_fn([&] { return x.sin().cos(); }, quantize_ops({"aten::sin"}, 8)));
  EXPECT_LE((close - plain).abs().max().item<double>(), 0.05);
  EXPECT_FALSE(at::equal(close, plain));
}

TEST_F(QuantizeOpsTest, MetaTensorsTakeTheSameBytes) {
  for (const int64_t bits : {8, 4, 1}) {
    const SaveWithHooks hooks = quantizing(bits);
    for (const at::Tensor& x : {constant({3, 700}), constant({3, 700}) > 0}) {
      const c10::IValue packed = hooks.pack(x.to(at::kMeta));
      EXPECT_EQ(packed.isNone(), bits == 1 && x.scalar_type() != at::kBool);
      EXPECT_EQ(packed_bytes(packed), packed_bytes(hooks.pack(x)));
      EXPECT_TRUE(packed.isNone() || hooks.unpack(packed).is_meta());
    }
  }
}

TEST_F(QuantizeOpsTest, NamesBadInput) {
  for (const int64_t bits : {0, 2, 3, 16, -1}) {
    expect_error([&] { quantize_ops({"aten::sin"}, bits); },
                 {"quantize_ops was given", std::to_string(bits).c_str(), "expected 8, 4, or 1"});
  }
  // A tensor without memory will do: nothing of it is looked at.
  const at::Tensor elsewhere =
      at::detail::make_tensor<c10::TensorImpl>(c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                               caffe2::TypeMeta::Make<float>(), c10::Device(c10::kPrivateUse1, 0));
  expect_error([&] { quantizing(8).pack(elsewhere); },
               {"quantize_ops cannot quantise the result of aten::sin", "privateuseone:0", "expected one on the CPU"});
  expect_error([] { quantize_ops({"aten::sinn"}, 8); }, {"quantize_ops", "aten::sinn", "aten::sin"});
}

}  // namespace
}  // namespace ac2::test
