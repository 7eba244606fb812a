// Tensors that are more, or other, than strided real numbers: sparse, complex, conjugated, negated.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <ostream>
#include <vector>

#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using SparseTest = CleanTest;
using ComplexTest = CleanTest;

at::Tensor sparse_matrix() {
  at::Tensor indices = at::tensor({0, 0, 2, 1, 3, 1}).to(at::kLong).view({2, 3});
  return at::sparse_coo_tensor(indices, at::tensor({1.5F, -2.0F, 0.5F}), {3, 4});
}

TEST_F(SparseTest, ASparseInputTimesARecomputedMatrix) {
  expect_same_gradients_and_replays(
      [](const Tensors& in) {
        at::Tensor dense = in[0].sin();
        return Tensors{at::_sparse_mm(sparse_matrix(), dense).cos().sum()};
      },
      {sample({4, 2})}, 2);  // sin, and the product for cos
}

TEST_F(SparseTest, ASparseResultIsHeldWhole) {
  // A gradient through a sparse tensor that the region itself makes from dense values.
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor indices = at::tensor({0, 2, 1, 3}).to(at::kLong).view({2, 2});
        at::Tensor sparse = at::sparse_coo_tensor(indices, in[0].sin(), {3, 4});
        return Tensors{at::_sparse_mm(sparse, in[1].cos()).sin()};
      },
      {sample({2}), sample({4, 2})});
}

TEST_F(SparseTest, ASparseTensorsOwnOps) {
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor sparse = in[0].sin().to_sparse();
        at::Tensor sum = at::_sparse_sum(sparse.coalesce(), at::IntArrayRef({1}));
        return Tensors{sum.to_dense().cos(), (sparse * 2).to_dense().sin()};
      },
      {sample({3, 4})});
}

TEST_F(SparseTest, AnEmbeddingWithASparseGradient) {
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor rows = at::embedding(in[0], in[1], -1, false, /*sparse=*/true);
        return Tensors{rows.sin().cos()};
      },
      {sample({5, 3}), at::tensor({1, 4, 1}).to(at::kLong)});
}

TEST_F(SparseTest, CompressedRows) {
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor csr = sparse_matrix().to_sparse_csr();
        return Tensors{csr.matmul(in[0].sin()).cos()};
      },
      {sample({4, 2})});
}

// The tensor is copied before the write, as storages are.
TEST_F(SparseTest, AWriteToATensorThatIsHeldWholeDoesNotReachWhatWasRead) {
  const auto square = [] { return at::eye(4) * 1.5; };
  const std::vector<std::function<at::Tensor()>> layouts = {
      [&] { return square().to_sparse(); },
      [&] { return square().to_sparse_csr(); },
      [&] { return square().to_mkldnn(); },
      [&] { return at::quantize_per_tensor(square(), 0.5, 0, at::kQInt8); },
  };
  for (size_t i = 0; i < layouts.size(); ++i) {
    for (const char* policy : {"recompute_all", "must_save_all"}) {
      const at::Tensor w = sample({4, 4}), outside = layouts[i]();
      const auto fn = [&](const at::Tensor& outside) {
        const at::Tensor inside = layouts[i]();
        at::Tensor sum = at::zeros({4, 4});
        for (const at::Tensor& whole : {outside, inside}) {
          const auto dense = [&] { return whole.is_quantized() ? whole.dequantize() : whole.to_dense(); };
          sum = sum + (dense() * w).sin();
          if (whole.is_quantized()) {
            whole.copy_(square() * 2);
          } else if (whole.is_mkldnn()) {
            whole.mul_(whole.clone());
          } else {
            whole.mul_(2);
          }
          sum = sum + (dense() * w).cos();
        }
        return sum;
      };
      const at::Tensor expected = gradient_of(fn(layouts[i]()), w);
      const at::Tensor y = apply_ac_policy_fn([&] { return fn(outside); }, policy);
      EXPECT_TRUE(same_bits(gradient_of(y, w), expected)) << i << " under " << policy;
    }
  }
}

// A write that counts no version of the tensor which the region holds whole.
TEST_F(SparseTest, AReplayThatWouldReadOtherValuesThanForwardIsAnError) {
  const at::Tensor w = sample({3, 3}).requires_grad_(), values = at::ones({3});
  const at::Tensor coo = at::sparse_coo_tensor(at::arange(3).repeat({2, 1}), values, {3, 3});
  const at::Tensor csr = at::eye(3).to_sparse_csr();
  struct Case {
    const char* name;
    at::Tensor sparse;
    at::Tensor written;
  };
  for (const Case& one : {Case{"values", coo, values}, Case{"data of values", coo, coo._values().variable_data()},
                          Case{"rows", csr, csr.values().variable_data()}}) {
    for (const char* policy : {"recompute_all", "must_save_all"}) {
      const auto loss_of = [&] { return at::matmul(one.sparse, w).square().sum(); };
      // As a kernel does that no dispatcher sees.
      const auto write = [&](float factor) {
        auto* numbers = one.written.mutable_data_ptr<float>();
        for (int64_t i = 0; i < one.written.numel(); ++i) {
          numbers[i] *= factor;
        }
      };
      at::Tensor plain = loss_of();
      write(2);
      const at::Tensor expected = torch::autograd::grad({plain}, {w})[0];
      write(0.5f);
      at::Tensor loss, again;
      {
        const PolicyScope scope(policy);
        loss = loss_of();
      }
      write(2);
      if (std::string(policy) == "must_save_all") {
        EXPECT_TRUE(same_bits(torch::autograd::grad({loss}, {w})[0], expected)) << one.name;
      } else {
        expect_error([&] { torch::autograd::grad({loss}, {w}); }, {"the values of a", "modified by an inplace"});
      }
      write(0.5f);
      {
        const PolicyScope scope(policy);
        at::matmul(one.sparse, w);
        write(2);
        again = loss_of();
      }
      EXPECT_TRUE(same_bits(torch::autograd::grad({again}, {w})[0], torch::autograd::grad({loss_of()}, {w})[0]))
          << one.name;
      write(0.5f);
    }
  }
}

TEST_F(ComplexTest, ElementwiseOpsAndProducts) {
  expect_same_gradients_and_replays(
      [](const Tensors& in) { return Tensors{at::matmul(in[0].sin(), in[1].cos()).exp().abs().sum()}; },
      // sin, cos, their product, and exp, for itself and for abs.
      {sample({3, 4}, at::kComplexFloat), sample({4, 2}, at::kComplexFloat)}, 4);
}

TEST_F(ComplexTest, AConjugateIsAView) {
  Stats stats = expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor a = in[0].sin();
        EXPECT_TRUE(a.conj().is_conj());
        return Tensors{a.conj() * in[0]};
      },
      {sample({4}, at::kComplexFloat)});
  EXPECT_EQ(stats.forward.saved_bytes, 4 * 8);  // in[0]
}

TEST_F(ComplexTest, AConjugateIsWrittenThrough) {
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor a = in[0].sin();
        a.conj().mul_(in[1]);
        return Tensors{a.cos(), a.conj().t().sin()};
      },
      {sample({4, 4}, at::kComplexFloat), constant({4, 4}, at::kComplexFloat)});
}

TEST_F(ComplexTest, ANegatedImaginaryPartIsAView) {
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor imaginary = at::imag(in[0].sin().conj());
        EXPECT_TRUE(imaginary.is_neg());
        return Tensors{imaginary.cos(), imaginary * at::real(in[0])};
      },
      {sample({4}, at::kComplexFloat)});
}

TEST_F(ComplexTest, FourierTransformThereAndBack) {
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor spectrum = at::fft_rfft(in[0].sin());
        at::Tensor filtered = spectrum * at::complex(in[1].cos(), in[1].sin());
        return Tensors{at::fft_irfft(filtered, 8).tanh()};
      },
      {sample({3, 8}), sample({5})});
}

TEST(OpaqueTest, MkldnnTensorsAreHeldWhole) {
  if (!at::hasMKLDNN()) GTEST_SKIP() << "LibTorch without oneDNN";
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor opaque = in[0].sin().to_mkldnn();
        return Tensors{opaque.relu().to_dense().cos(), opaque.to_dense().exp()};
      },
      {sample({2, 3, 4, 4})});
}

TEST(OpaqueTest, NestedTensorsAreHeldWhole) {
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor nested = at::_nested_tensor_from_tensor_list({in[0].sin(), in[1].sin()});
        return Tensors{nested.mul(2).to_padded_tensor(0.0).cos()};
      },
      {sample({2, 3}), sample({4, 3})});
}

// Autograd asks for them where it may not throw: a policy that threw would end the process.
TEST(OpaqueTest, NoPolicyIsAskedForTheSizesOfANestedTensor) {
  const at::Tensor leaf =
      at::_nested_tensor_from_tensor_list({constant({2, 3}), constant({4, 3})}).detach().requires_grad_();
  const auto padded = [&] { return leaf.mul(2).to_padded_tensor(0.0).cos(); };
  int asked = 0;
  const Policy throws_at_sizes([&](const OpContext& op) {
    ++asked;
    TORCH_CHECK(!op.is("aten::_nested_tensor_size") && !op.is("aten::_nested_tensor_strides"), "asked for sizes");
    return PolicyDecision(CheckpointPolicy::PREFER_RECOMPUTE);
  });
  const at::Tensor gradient = gradient_of(apply_ac_policy_fn(padded, throws_at_sizes), leaf);
  EXPECT_TRUE(same_bits(gradient.to_padded_tensor(0.0), gradient_of(padded(), leaf).to_padded_tensor(0.0)));
  EXPECT_GT(asked, 0);
}

TEST(OpaqueTest, TensorsWithoutDataAreRecomputedWithoutData) {
  at::Tensor x = at::empty({4}, at::kMeta).requires_grad_(true);
  at::Tensor y = apply_ac_policy_fn([&] { return x.sin().cos(); }, "recompute_all");
  at::Tensor gradient = torch::autograd::grad({y.sum()}, {x})[0];
  EXPECT_TRUE(gradient.is_meta());
  EXPECT_EQ(gradient.sizes(), x.sizes());
  y.reset();
  expect_nothing_left();
}

TEST(OpaqueTest, QuantizedTensorsInTheMiddle) {
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor quantized = at::quantize_per_tensor(in[1].sin(), 0.1, 0, at::kQInt8);
        return Tensors{(in[0].sin() * quantized.dequantize()).cos()};
      },
      {sample({4}), constant({4})});
}

struct Type {
  const char* name;
  at::ScalarType type;
};

void PrintTo(const Type& type, std::ostream* out) {
  *out << type.name;
}

class EveryTypeTest : public CleanTest, public ::testing::WithParamInterface<Type> {};

TEST_P(EveryTypeTest, IsReplayedInItsOwnType) {
  at::ScalarType type = GetParam().type;
  expect_same_gradients_and_replays([](const Tensors& in) { return Tensors{in[0].sin().mul(1.25).exp().sum()}; },
                                    {sample({7}, at::kFloat).detach().to(type).requires_grad_(true)}, 3);
}

INSTANTIATE_TEST_SUITE_P(Of, EveryTypeTest,
                         ::testing::Values(Type{"float64", at::kDouble}, Type{"float32", at::kFloat},
                                           Type{"float16", at::kHalf}, Type{"bfloat16", at::kBFloat16},
                                           Type{"complex64", at::kComplexFloat},
                                           Type{"complex128", at::kComplexDouble}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ac2::test
