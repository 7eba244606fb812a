// Kernels of the program's own that write through data_ptr() into what an op has made, before anything else reads that.
// No dispatcher sees them, and nobody calls ac2::expose().
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>

#include "tests/support/regions.h"
#include "tests/support/warnings.h"
#include "tests/support/ways.h"

namespace ac2::test {
namespace {

using ::testing::HasSubstr;
using UnseenKernelsTest = CleanTest;

// y[i] = x[i] * x[i] - i: what plain C++ does with pointers.
void square_minus_index(const at::Tensor& x, at::Tensor& y) {
  const float* from = x.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  for (int64_t i = 0; i < y.numel(); ++i) {
    to[i] = from[i] * from[i] - static_cast<float>(i);
  }
}

void negate(at::Tensor& y) {
  float* values = y.mutable_data_ptr<float>();
  for (int64_t i = 0; i < y.numel(); ++i) {
    values[i] = -values[i];
  }
}

// The gradient of what `forward` makes of `x` is plain autograd's.
void expect_plain_gradient(const at::Tensor& x, const std::function<at::Tensor()>& forward) {
  const at::Tensor expected = gradient_of(forward(), x);
  for (const Way& way : all_ways(/*verify=*/false)) {
    at::Tensor out;
    {
      const PolicyScope scope(way.policy, way.options);
      out = forward();
    }
    expect_same_bits({gradient_of(out, x)}, {expected}, way.name);
  }
}

// `make` makes a tensor of x's size, in which a kernel writes before ops of which backward needs it, as it is, and by
// way of a result that is computed again.
void expect_plain_bits(const std::function<at::Tensor(const at::Tensor& x)>& make, int64_t n = 24) {
  const at::Tensor x = sample({n});
  expect_plain_gradient(x, [&] {
    at::Tensor made = make(x.detach());
    square_minus_index(x, made);
    return (x * made).sin() * (made + 1).exp();
  });
}

TEST_F(UnseenKernelsTest, AKernelMayWriteOverWhatAnOpHasMade) {
  expect_plain_bits([](const at::Tensor& x) { return at::ones_like(x) * 3; });
  expect_plain_bits([](const at::Tensor& x) { return -at::zeros_like(x); });
  expect_plain_bits([](const at::Tensor& x) { return x.clone(); });
  expect_plain_bits([](const at::Tensor& x) { return at::cat({x.slice(0, 0, 12), x.slice(0, 12)}); });
  expect_plain_bits([](const at::Tensor& x) { return x.to(at::kDouble).to(at::kFloat); });
  expect_plain_bits([](const at::Tensor& x) { return at::constant_pad_nd(x.slice(0, 4), {4, 0}); });
  expect_plain_bits([](const at::Tensor& x) { return x.slice(0, 0, 1).expand({24}).contiguous(); });
}

TEST_F(UnseenKernelsTest, AKernelMayWriteOverWhatAnOpHasWrittenInPlace) {
  expect_plain_bits([](const at::Tensor& x) { return at::empty_like(x).fill_(2); });
  expect_plain_bits([](const at::Tensor& x) { return at::empty_like(x).zero_(); });
  expect_plain_bits([](const at::Tensor& x) { return x.clone().mul_(2); });
}

TEST_F(UnseenKernelsTest, AKernelMayWriteToTensorsOfAnySize) {
  for (const int64_t n : {1, 2, 3, 15, 16, 17, 1000, 100000}) {
    expect_plain_bits([](const at::Tensor& x) { return at::ones_like(x) * 3; }, n);
  }
}

TEST_F(UnseenKernelsTest, AKernelMayWriteInPlaceBeforeAnOpThatWritesThere) {
  const at::Tensor x = sample({24});
  expect_plain_gradient(x, [&] {
    at::Tensor y = x.detach() * 2;
    negate(y);
    y.exp_();  // reads what the kernel has left
    return (x * y).sin();
  });
}

class Kernel : public torch::autograd::Function<Kernel> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    at::Tensor y = at::ones_like(x) * 0.5;
    square_minus_index(x, y);
    context->save_for_backward({x, y});
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const torch::autograd::variable_list saved = context->get_saved_variables();
    return {gradients[0] * 2 * saved[0] * saved[1]};
  }
};

TEST_F(UnseenKernelsTest, AFunctionMaySaveWhatItsKernelHasWritten) {
  const at::Tensor x = sample({24});
  expect_plain_gradient(x, [&] { return Kernel::apply(x.sin()).cos(); });
}

TEST_F(UnseenKernelsTest, WhatAKernelHasWrittenIsHeldAndToldOfByNameAndBytes) {
  const at::Tensor x = sample({24});
  const c10::WarningUtils::WarnAlways always(true);
  const Warnings warnings;
  at::Tensor out;
  {
    const PolicyScope scope("recompute_all");
    at::Tensor y = x.detach() * 2;
    negate(y);
    out = (x * y).sin();
    y = at::Tensor();
    EXPECT_EQ(scope.trace()->stats().saved_bytes, 24 * 4 + storage_bytes(x));
  }
  ASSERT_EQ(warnings.messages.size(), 1U);
  EXPECT_THAT(warnings.messages[0], HasSubstr("aten::mul.Scalar (op 1 of its region)"));
  EXPECT_THAT(warnings.messages[0], HasSubstr("96 bytes"));
  EXPECT_THAT(warnings.messages[0], HasSubstr("ac2::expose(tensor)"));
}

TEST_F(UnseenKernelsTest, WhereNoKernelWritesNothingMoreIsHeld) {
  const at::Tensor x = sample({24});
  at::Tensor out;
  const PolicyScope scope("recompute_all");
  {
    at::Tensor y = x.detach() * 2;
    y.mul_(3);
    y.resize_({30}).zero_();
    y = x.detach() * 2;
    {
      const at::NoGradGuard no_grad;
      y.add_(1);
    }
    out = (x * y).sin();
  }
  EXPECT_EQ(scope.trace()->stats().saved_bytes, storage_bytes(x));
}

}  // namespace
}  // namespace ac2::test
