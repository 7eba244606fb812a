// quantize_ops on a GPU: bitwise the codes, ranges, masks and numbers of the CPU.
#include <cmath>
#include <limits>
#include <string>

#include "policies/internal/quantize/bit_mask.h"
#include "policies/internal/quantize/quantize.h"
#include "policies/quantize_ops.h"
#include "tests/gpu/gpu.h"
#include "tests/support/packed.h"

namespace ac2::test {
namespace {

namespace internal = policies::internal;

using GpuQuantizeTest = GpuTest;

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};
constexpr int64_t kLengths[] = {0, 1, 3, 31, 255, 256, 257, 4096, 70001, 1 << 20};

// With blocks of all kinds; those without codes if `exact`.
at::Tensor numbers(int64_t numel, at::ScalarType type, bool exact) {
  const at::Tensor x = constant({numel}, at::kDouble);
  for (int64_t begin = 0, kind = 0; begin < numel; begin += 256, ++kind) {
    const at::Tensor block = x.slice(0, begin, begin + 256);
    if (kind % 7 == 1) block.fill_(-0.0);
    if (kind % 7 == 2) block.relu_().slice(0, 0, block.numel(), 3).mul_(-0.0);
    if (kind % 7 == 3) block.mul_(1e-3).add_(1000);
    if (exact && kind % 7 == 4) block[block.numel() / 2] = std::nan("");
    if (exact && kind % 7 == 5) block[block.numel() - 1] = -std::numeric_limits<double>::infinity();
  }
  return x.to(type);
}

void expect_same_packed(const c10::IValue& actual, const c10::IValue& expected, size_t first) {
  const auto &a = actual.toTupleRef().elements(), &e = expected.toTupleRef().elements();
  ASSERT_EQ(a.size(), e.size());
  for (size_t i = first; i < a.size(); ++i) {
    if (!e[i].isTensor()) {
      EXPECT_EQ(a[i].toInt(), e[i].toInt());
    } else if (e[i].toTensor().defined()) {
      EXPECT_TRUE(same_bits(a[i].toTensor().cpu(), e[i].toTensor())) << "part " << i;
    } else {
      EXPECT_FALSE(a[i].toTensor().defined());
    }
  }
}

TEST_F(GpuQuantizeTest, CodesAndNumbersAreThoseOfTheCpu) {
  for (const at::ScalarType type : kTypes) {
    for (const int64_t numel : kLengths) {
      for (const bool exact : {false, true}) {
        for (const int bits : {8, 4}) {
          SCOPED_TRACE(std::string(toString(type)) + ", " + std::to_string(numel) + ", " + std::to_string(bits) +
                       " bits" + (exact ? ", with blocks without codes" : ""));
          const at::Tensor x = numbers(numel, type, exact);
          const c10::IValue on_cpu = internal::quantize(x, bits, 99), on_gpu = internal::quantize(x.cuda(), bits, 99);
          expect_same_packed(on_gpu, on_cpu, 1);
          EXPECT_TRUE(same_bits(internal::dequantize(on_gpu).cpu(), internal::dequantize(on_cpu)));
        }
      }
    }
  }
}

TEST_F(GpuQuantizeTest, NumbersThatBeginAtAnyByteAreTheSame) {
  for (const at::ScalarType type : kTypes) {
    const at::Tensor all = numbers(5001, type, true), on_gpu = all.cuda();
    for (const int64_t begin : {1, 3}) {
      const c10::IValue packed = internal::quantize(on_gpu.slice(0, begin), 8, 5);
      expect_same_packed(packed, internal::quantize(all.slice(0, begin), 8, 5), 1);
    }
  }
}

TEST_F(GpuQuantizeTest, MasksAreThoseOfTheCpu) {
  for (const int64_t numel : kLengths) {
    SCOPED_TRACE(numel);
    const at::Tensor mask = constant({numel}) > 0.3;
    const c10::IValue packed = internal::pack_two_valued(mask.cuda());
    ASSERT_FALSE(packed.isNone());
    EXPECT_EQ(packed_bytes(packed), (numel + 7) / 8);
    EXPECT_TRUE(same_bits(internal::unpack_bits(packed).cpu(), mask));
    for (const at::ScalarType type : kTypes) {
      const at::Tensor x = numbers(numel, type, true);
      const c10::IValue on_cpu = internal::pack_positive(x), on_gpu = internal::pack_positive(x.cuda());
      expect_same_packed(on_gpu, on_cpu, 1);
      EXPECT_TRUE(same_bits(internal::unpack_bits(on_gpu).cpu(), internal::unpack_bits(on_cpu)));
    }
  }
}

TEST_F(GpuQuantizeTest, ARegionTrainsWithResultsInFewerBits) {
  const at::Tensor x = gpu_sample({64, 128});
  // Small, so that an error of a 255th of the range is one of the sine, too.
  const at::Tensor w = (gpu_constant({128, 128}) * 0.05).requires_grad_(true);
  const auto fn = [&] { return at::dropout(at::gelu(x.mm(w)), 0.1, true).mm(w).cos(); };
  at::manual_seed(1);
  const at::Tensor exact = gradient_of(fn(), w);
  for (const int64_t bits : {8, 4}) {
    at::manual_seed(1);
    at::Tensor y;
    {
      PolicyScope scope(policies::quantize_ops({"aten::*"}, bits));
      y = fn();
    }
    const at::Tensor close = gradient_of(y, w);
    EXPECT_LT((close - exact).norm().item<double>() / exact.norm().item<double>(), bits == 8 ? 0.02 : 0.3);
    EXPECT_FALSE(at::equal(close, exact));
  }
}

TEST_F(GpuQuantizeTest, OneBitOfAReluIsExact) {
  const at::Tensor x = gpu_sample({1000});
  const at::Tensor expected = gradient_of((x * 2).relu(), x);
  at::Tensor y;
  {
    PolicyScope scope(policies::quantize_ops({"aten::relu"}, 1));
    y = (x * 2).relu();
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
}

}  // namespace
}  // namespace ac2::test
