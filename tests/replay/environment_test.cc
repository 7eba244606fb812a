// A replay sees what the op saw in forward of its thread and of LibTorch's global switches, and leaves them as they
// were.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/DefaultDtype.h>
#include <torch/library.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/support/failing_allocator.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

bool flushes_denormals() {
  return (at::full({1}, 1e-40, at::kFloat) * 0.5).item<float>() == 0;
}

// All that an op can ask for.
std::vector<double> what_is_set() {
  const at::Context& context = at::globalContext();
  return {
      static_cast<double>(c10::get_default_dtype_as_scalartype()),
      static_cast<double>(flushes_denormals()),
      static_cast<double>(at::get_num_threads()),
      static_cast<double>(context.deterministicAlgorithms()),
      static_cast<double>(context.deterministicAlgorithmsWarnOnly()),
      static_cast<double>(context.deterministicFillUninitializedMemory()),
      static_cast<double>(context.userEnabledMkldnn()),
      static_cast<double>(context.deterministicMkldnn()),
      static_cast<double>(context.userEnabledNNPACK()),
      static_cast<double>(context.userEnabledCuDNN()),
      static_cast<double>(context.benchmarkCuDNN()),
      static_cast<double>(context.deterministicCuDNN()),
      static_cast<double>(context.userEnabledFlashSDP()),
      static_cast<double>(context.userEnabledMemEfficientSDP()),
      static_cast<double>(context.userEnabledMathSDP()),
      static_cast<double>(context.userEnabledCuDNNSDP()),
      static_cast<double>(context.userEnabledOverrideableSDP()),
      static_cast<double>(context.allowFP16BF16ReductionMathSDP()),
      static_cast<double>(context.allowFP16AccumulationCuBLAS()),
      static_cast<double>(context.allowFP16ReductionCuBLAS()),
      static_cast<double>(context.allowBF16ReductionCuBLAS()),
      static_cast<double>(context.float32MatmulPrecision()),
      static_cast<double>(context.allowTF32CuDNN()),
      static_cast<double>(context.allowTF32CuBLAS()),
  };
}

at::Tensor see(const at::Tensor& /*x*/) {
  return at::tensor(what_is_set(), at::kDouble);
}

TORCH_LIBRARY(ac2_environment_test, m) {
  m.def("see(Tensor x) -> Tensor", &see);
}

at::Tensor seen(const at::Tensor& x) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("ac2_environment_test::see", "").typed<decltype(see)>();
  return op.call(x);
}

struct Setting {
  const char* name;
  void (*set)(bool);
};

at::Context& context() {
  return at::globalContext();
}

const Setting kSettings[] = {
    {"DefaultDtype",
     [](bool on) { c10::set_default_dtype(on ? caffe2::TypeMeta::Make<double>() : caffe2::TypeMeta::Make<float>()); }},
    {"FlushDenormal", [](bool on) { at::Context::setFlushDenormal(on); }},
    {"Threads", [](bool on) { at::set_num_threads(on ? 3 : 2); }},
    {"DeterministicAlgorithms", [](bool on) { context().setDeterministicAlgorithms(on, false); }},
    {"WarnOnly", [](bool on) { context().setDeterministicAlgorithms(on, on); }},
    {"FillUninitializedMemory", [](bool on) { context().setDeterministicFillUninitializedMemory(!on); }},
    {"Mkldnn", [](bool on) { context().setUserEnabledMkldnn(!on); }},
    {"DeterministicMkldnn", [](bool on) { context().setDeterministicMkldnn(on); }},
    {"Nnpack", [](bool on) { context().setUserEnabledNNPACK(!on); }},
    {"Cudnn", [](bool on) { context().setUserEnabledCuDNN(!on); }},
    {"BenchmarkCudnn", [](bool on) { context().setBenchmarkCuDNN(on); }},
    {"DeterministicCudnn", [](bool on) { context().setDeterministicCuDNN(on); }},
    {"FlashAttention", [](bool on) { context().setSDPUseFlash(!on); }},
    {"MemoryEfficientAttention", [](bool on) { context().setSDPUseMemEfficient(!on); }},
    {"MathAttention", [](bool on) { context().setSDPUseMath(!on); }},
    {"CudnnAttention", [](bool on) { context().setSDPUseCuDNN(!on); }},
    {"OverrideableAttention", [](bool on) { context().setSDPUseOverrideable(!on); }},
    {"HalfReductionOfMathAttention", [](bool on) { context().setAllowFP16BF16ReductionMathSDP(on); }},
    {"HalfAccumulation", [](bool on) { context().setAllowFP16AccumulationCuBLAS(on); }},
    {"HalfReduction", [](bool on) { context().setAllowFP16ReductionCuBLAS(!on); }},
    {"BFloat16Reduction", [](bool on) { context().setAllowBF16ReductionCuBLAS(!on); }},
    {"Float32MatmulPrecision", [](bool on) { context().setFloat32MatmulPrecision(on ? "medium" : "highest"); }},
    {"Tf32OfCudnn", [](bool on) { context().setAllowTF32CuDNN(!on); }},
    {"Tf32OfCublas", [](bool on) { context().setAllowTF32CuBLAS(on); }},
};

class EnvironmentTest : public CleanTest {
 protected:
  void SetUp() override {
    CleanTest::SetUp();
    threads_ = at::get_num_threads();
  }
  void TearDown() override {
    for (const Setting& setting : kSettings) {
      setting.set(false);
    }
    at::set_num_threads(threads_);
    CleanTest::TearDown();
  }

 private:
  int threads_ = 0;
};

class EachSettingTest : public EnvironmentTest, public ::testing::WithParamInterface<Setting> {};

TEST_P(EachSettingTest, IsForwardsInAReplayAndTheProgramsAfterIt) {
  const auto set = GetParam().set;
  const at::Tensor x = sample({static_cast<int64_t>(what_is_set().size())}, at::kDouble);
  set(true);
  const std::vector<double> in_forward = what_is_set();
  const at::Tensor y = apply_ac_policy_fn([&] { return (x * seen(x)).sin(); }, "recompute_all");
  set(false);
  const std::vector<double> in_backward = what_is_set();
  EXPECT_NE(in_forward, in_backward);
  const at::Tensor factors = at::tensor(in_forward, at::kDouble);
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of((x * factors).sin(), x)));
  EXPECT_EQ(what_is_set(), in_backward);
}

INSTANTIATE_TEST_SUITE_P(, EachSettingTest, ::testing::ValuesIn(kSettings),
                         [](const auto& info) { return std::string(info.param.name); });

// Forward under one default dtype, plain and in a region; backward under another.
void expect_same_under(at::ScalarType forward, at::ScalarType backward,
                       const std::function<at::Tensor(at::Tensor)>& fn) {
  const at::Tensor x = sample({4, 4});
  const auto run = [&](const std::function<at::Tensor()>& in_forward) {
    at::manual_seed(7);
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(forward));
    const at::Tensor y = in_forward();
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(backward));
    return gradient_of(y, x);
  };
  const at::Tensor expected = run([&] { return fn(x); });
  for (const char* policy : {"recompute_all", "must_save_all"}) {
    EXPECT_TRUE(same_bits(run([&] { return apply_ac_policy_fn([&] { return fn(x); }, policy); }), expected)) << policy;
  }
  c10::set_default_dtype(caffe2::TypeMeta::Make<float>());
}

TEST_F(EnvironmentTest, IntegersAreDividedIntoForwardsDefaultDtype) {
  expect_same_under(at::kHalf, at::kBFloat16, [](const at::Tensor& x) {
    return (at::arange(1, 17).view({4, 4}) / 7).exp().to(at::kFloat) * x;
  });
  expect_same_under(at::kBFloat16, at::kFloat, [](const at::Tensor& x) {
    return (at::arange(1, 17).view({4, 4}) / 7).exp().to(at::kFloat) * x;
  });
}

TEST_F(EnvironmentTest, RootsOfIntegersHaveForwardsDefaultDtype) {
  expect_same_under(at::kBFloat16, at::kFloat, [](const at::Tensor& x) {
    return at::arange(1, 17).view({4, 4}).sqrt().exp().to(at::kFloat) * x;
  });
}

TEST_F(EnvironmentTest, NumbersAreDrawnInForwardsDefaultDtype) {
  expect_same_under(at::kDouble, at::kFloat, [](const at::Tensor& x) {
    return at::rand({4, 4}).cos().to(at::kFloat) * x;
  });
}

TEST_F(EnvironmentTest, TagsAndNamesMayHaveASavedResultRecomputedInForwardsDefaultDtype) {
  expect_same_under(at::kDouble, at::kFloat, [](const at::Tensor& x) {
    at::Tensor quotient = at::arange(1, 17).view({4, 4}) / 7;
    tag_with_policy(quotient, CheckpointPolicy::MUST_RECOMPUTE);
    return quotient.exp().to(at::kFloat) * x;
  });
}

TEST_F(EnvironmentTest, DenormalNumbersAreFlushedWhereForwardFlushedThem) {
  const at::Tensor x = sample({8}), tiny = at::full({8}, 1e-40, at::kFloat);
  at::Context::setFlushDenormal(true);
  const auto fn = [&] { return (tiny * 0.5 * 1e30 + 1e-9).exp() * x; };
  const at::Tensor expected = gradient_of(fn(), x);
  const at::Tensor y = apply_ac_policy_fn(fn, "recompute_all");
  at::Context::setFlushDenormal(false);
  EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
}

TEST_F(EnvironmentTest, IsForwardsUnderABudgetToo) {
  expect_same_under(at::kHalf, at::kFloat, [](const at::Tensor& x) {
    PolicyScope scope({.memory_budget = 160});
    return (at::arange(1, 17).view({4, 4}) / 7).exp().to(at::kFloat) * x;
  });
}

// --- where oneDNN gets no memory: LibTorch computes some products without it, and switches it off for the process ---

struct Product {
  at::ScalarType dtype;  // which kernels that happens to depends on the machine
  at::Tensor (*of)(const at::Tensor& a, const at::Tensor& b);
};

const Product kProducts[] = {
    {at::kBFloat16, [](const at::Tensor& a, const at::Tensor& b) { return at::bmm(a, b); }},
    {at::kBFloat16, [](const at::Tensor& a, const at::Tensor& b) { return a.clone().baddbmm_(a, b); }},
    {at::kFloat, [](const at::Tensor& a, const at::Tensor& b) { return at::linear(a[0], b[0], b[1][0]); }},
};

class WithoutOneDnnTest : public EnvironmentTest {
 protected:
  // Backward needs the product, and multiplies no matrices itself.
  at::Tensor forward(const Product& product, int64_t failing) {
    const at::Tensor a = a_.to(product.dtype), b = b_.to(product.dtype);
    memory_.fail_after(failing);
    const at::Tensor y = product.of(a, b);
    memory_.never_fail();
    return (x_ * y.to(at::kFloat)).sum();
  }
  // The allocations of the product without which it is computed, but by other kernels.
  std::vector<int64_t> switching(const Product& product) {
    std::vector<int64_t> found;
    for (int64_t n = 0; n < 12; ++n) {
      try {
        forward(product, n);
      } catch (const c10::OutOfMemoryError&) {
      }
      memory_.never_fail();
      if (!context().userEnabledMkldnn()) {
        found.push_back(n);
        context().setUserEnabledMkldnn(true);
      }
    }
    return found;
  }

  struct Backward {
    bool met_failure;
    std::string error;  // empty if it has done what it should
  };
  // The allocation after `n` more fails. Without an error the gradient is `expected`. The switch stays on.
  Backward backward_failing_after(int64_t n, const at::Tensor& y, const at::Tensor& expected) {
    Backward result;
    memory_.fail_after(n);
    try {
      EXPECT_TRUE(same_bits(gradient_of(y, x_), expected)) << n;
    } catch (const c10::Error& error) {
      result.error = error.what();
    }
    result.met_failure = memory_.has_failed();
    memory_.never_fail();
    EXPECT_TRUE(context().userEnabledMkldnn()) << n;
    context().setUserEnabledMkldnn(true);
    return result;
  }

  static constexpr int64_t kNever = int64_t{1} << 40;
  FailingAllocator& memory_ = FailingAllocator::install();
  const at::Tensor a_ = sample({64, 64, 64}).detach(), b_ = a_.flip(1).sin();
  const at::Tensor x_ = sample({64, 64, 64});
};

TEST_F(WithoutOneDnnTest, AProductIsReplayedAsForwardComputedIt) {
  int seen = 0;
  for (const Product& product : kProducts) {
    const at::Tensor with = gradient_of(forward(product, kNever), x_);
    for (const int64_t n : switching(product)) {
      const at::Tensor expected = gradient_of(forward(product, n), x_);
      context().setUserEnabledMkldnn(true);
      const at::Tensor y = apply_ac_policy_fn([&] { return forward(product, n); }, "recompute_all");
      EXPECT_FALSE(context().userEnabledMkldnn());
      EXPECT_TRUE(same_bits(gradient_of(y, x_), expected)) << n;
      context().setUserEnabledMkldnn(true);
      seen += same_bits(with, expected) ? 0 : 1;
    }
  }
  if (seen == 0) GTEST_SKIP() << "LibTorch computes the same either way on this machine";
}

TEST_F(WithoutOneDnnTest, AReplayThatComputesOtherwiseIsAnError) {
  int errors = 0;
  for (const Product& product : kProducts) {
    const at::Tensor expected = gradient_of(forward(product, kNever), x_);
    bool has_failed = true;
    for (int64_t n = 0; has_failed; ++n) {
      const at::Tensor y = apply_ac_policy_fn([&] { return forward(product, kNever); }, "recompute_all");
      const Backward backward = backward_failing_after(n, y, expected);
      has_failed = backward.met_failure;
      if (!backward.error.empty()) {
        EXPECT_NE(backward.error.find("out of memory"), std::string::npos) << backward.error;
        ++errors;
      }
    }
  }
  EXPECT_GT(errors, 0);
}

TEST_F(WithoutOneDnnTest, AReplayIsTriedAgainWhereSomethingCanBeDropped) {
  int tried_again = 0;
  for (const Product& product : {kProducts[0], kProducts[2]}) {  // not the one that writes
    const at::Tensor a = a_.to(product.dtype), b = b_.to(product.dtype);
    const auto forward = [&] {
      const at::Tensor sine = sines(x_, 4);
      const at::Tensor y = product.of(a, b), wide = y.to(at::kFloat);
      tag_with_policy(y, CheckpointPolicy::MUST_RECOMPUTE);
      tag_with_policy(wide, CheckpointPolicy::MUST_RECOMPUTE);
      return (x_ * wide).sum() + sine.sum();
    };
    const at::Tensor expected = gradient_of(forward(), x_);
    bool has_failed = true;
    for (int64_t n = 0; has_failed; ++n) {
      at::Tensor y;
      std::shared_ptr<const Trace> trace;
      {
        PolicyScope scope({.memory_budget = int64_t{1} << 40});
        trace = scope.trace();
        y = forward();
      }
      EXPECT_EQ(trace->stats().evicted_values, 0);
      const Backward backward = backward_failing_after(n, y, expected);
      has_failed = backward.met_failure;
      // An error is of a kernel of backward's own.
      EXPECT_EQ(backward.error.find("oneDNN"), std::string::npos) << backward.error;
      tried_again += backward.error.empty() && backward.met_failure && trace->stats().evicted_values > 0;
    }
  }
  EXPECT_GT(tried_again, 0);
}

TEST_F(EnvironmentTest, TwoThreadsReplayInTwoEnvironments) {
  constexpr int kRounds = 50;
  const at::Tensor x = sample({4, 4});
  const at::ScalarType dtypes[] = {at::kHalf, at::kDouble};
  Tensors outputs[2], gradients[2];
  at::Tensor expected[2];
  for (int i = 0; i < 2; ++i) {
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(dtypes[i]));
    const auto fn = [&] { return (at::arange(1, 17).view({4, 4}) / 7).exp().to(at::kFloat) * x; };
    expected[i] = gradient_of(fn(), x);
    for (int round = 0; round < kRounds; ++round) outputs[i].push_back(apply_ac_policy_fn(fn, "recompute_all"));
  }
  c10::set_default_dtype(caffe2::TypeMeta::Make<float>());
  const auto backward = [&](int i) {
    for (const at::Tensor& y : outputs[i]) gradients[i].push_back(gradient_of(y, x));
  };
  std::thread other([&] { backward(1); });
  backward(0);
  other.join();
  for (int i = 0; i < 2; ++i) {
    for (const at::Tensor& gradient : gradients[i]) EXPECT_TRUE(same_bits(gradient, expected[i]));
  }
  EXPECT_EQ(c10::get_default_dtype_as_scalartype(), at::kFloat);
}

}  // namespace
}  // namespace ac2::test
