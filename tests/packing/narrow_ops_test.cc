// Results saved in a narrower floating-point format: how close they come back, and in how many bytes.
#include "policies/narrow_ops.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/packed.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using policies::narrow_ops;

using NarrowOpsTest = CleanTest;

struct Format {
  at::ScalarType type;
  double relative;  // half the distance of neighbours at 1
  double least;     // half the distance of neighbours at 0
  double greatest;
  bool scaled;
};

const Format kFormats[] = {{at::kBFloat16, 0x1p-8, 0x1p-134, 0x1.fep127, false},
                           {at::kHalf, 0x1p-11, 0x1p-25, 65504, false},
                           {at::kFloat8_e4m3fn, 0x1p-4, 0x1p-10, 448, true},
                           {at::kFloat8_e5m2, 0x1p-3, 0x1p-17, 57344, true}};

SaveWithHooks narrowing(at::ScalarType format) {
  return hooks_of(narrow_ops({"aten::sin"}, format), "aten::sin");
}

TEST_F(NarrowOpsTest, StaysWithinTheBoundOfEachNumber) {
  for (const Format& format : kFormats) {
    const SaveWithHooks hooks = narrowing(format.type);
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
      for (const double scale : {1.0, 1e-3, 1e3, 1e-30, 1e-41, 1e36, 1e300}) {
        for (const int64_t n : {0, 1, 1000}) {
          SCOPED_TRACE(std::string(toString(format.type)) + ", " + toString(type) + " times " + std::to_string(scale));
          const at::Tensor x = constant({n}, at::kDouble).mul(scale).to(type);
          if (!x.isfinite().all().item<bool>()) continue;
          const c10::IValue packed = hooks.pack(x);
          ASSERT_EQ(packed.isNone(), at::elementSize(type) <= at::elementSize(format.type));
          if (packed.isNone()) continue;
          const at::Tensor back = hooks.unpack(packed).to(at::kDouble), exact = x.to(at::kDouble);
          if (n == 0) continue;
          // Scaled by at least greatest / (2 · its own greatest), but never by more than 2^120.
          const double own = exact.abs().max().item<double>();
          const bool scaled = format.scaled || own > format.greatest;
          const double factor = scaled && own > 0 ? std::min(format.greatest / own / 2, 0x1p120) : 1;
          // The result's own format has a least distance too.
          const double result = type == at::kHalf ? 0x1p-25 : type == at::kDouble ? 0 : 0x1p-134;
          const at::Tensor bound =
              exact.abs().mul(format.relative * (1 + 0x1p-20)).add(format.least / factor * (1 + 0x1p-20) + result);
          EXPECT_TRUE(((back - exact).abs() <= bound).all().item<bool>());
        }
      }
    }
  }
}

TEST_F(NarrowOpsTest, WhatTheFormatHasComesBackExact) {
  for (const Format& format : kFormats) {
    const SaveWithHooks hooks = narrowing(format.type);
    const at::Tensor x = constant({1000}).to(format.type).to(at::kFloat);
    EXPECT_TRUE(same_bits(hooks.unpack(hooks.pack(x)), x)) << toString(format.type);
    const at::Tensor transposed = x.view({25, 40}).t();
    EXPECT_TRUE(same_bits(hooks.unpack(hooks.pack(transposed)), transposed)) << toString(format.type);
  }
}

TEST_F(NarrowOpsTest, WhatCannotBeNarrowedIsNotTaken) {
  for (const Format& format : kFormats) {
    const SaveWithHooks hooks = narrowing(format.type);
    at::Tensor not_finite = constant({100});
    not_finite[3] = std::nan("");
    not_finite[4] = std::numeric_limits<float>::infinity();
    for (const at::Tensor& x : {not_finite, constant({100}).to(format.type), at::arange(100), constant({100}) > 0,
                                constant({100}, at::kComplexFloat)}) {
      EXPECT_TRUE(hooks.pack(x).isNone()) << toString(x.scalar_type());
    }
  }
}

TEST_F(NarrowOpsTest, HoldsTheBytesOfTheFormat) {
  for (const Format& format : kFormats) {
    at::Tensor x = sample({1000}), y;
    {
      PolicyScope scope(narrow_ops({"aten::sin"}, format.type));
      y = x.sin().cos();
      EXPECT_EQ(scope.trace()->stats().saved_bytes, 4000 + 1000 * static_cast<int64_t>(at::elementSize(format.type)));
    }
    at::Tensor s = x.detach().sin(), plain = gradient_of(x.sin().cos(), x);
    at::Tensor gradient = gradient_of(y, x, /*retain_graph=*/true);
    EXPECT_FALSE(at::equal(gradient, plain));
    EXPECT_LE((gradient - plain).abs().max().item<double>(), format.relative + 1e-6);
    EXPECT_TRUE(same_bits(gradient_of(y, x), gradient));  // no draws
  }
}

TEST_F(NarrowOpsTest, MetaTensorsTakeTheSameBytes) {
  for (const Format& format : kFormats) {
    const SaveWithHooks hooks = narrowing(format.type);
    const at::Tensor x = constant({30, 7});
    const c10::IValue packed = hooks.pack(x.to(at::kMeta));
    EXPECT_EQ(packed_bytes(packed), packed_bytes(hooks.pack(x)));
    EXPECT_TRUE(hooks.unpack(packed).is_meta());
  }
}

TEST_F(NarrowOpsTest, NamesBadInput) {
  for (const at::ScalarType type : {at::kFloat, at::kInt, at::kByte, at::kFloat8_e4m3fnuz}) {
    expect_error([&] { narrow_ops({"aten::sin"}, type); },
                 {"narrow_ops", "was given", toString(type), "Float8_e4m3fn"});
  }
  expect_error([] { narrow_ops({"aten::sinn"}, at::kHalf); }, {"narrow_ops", "aten::sinn", "aten::sin"});
}

}  // namespace
}  // namespace ac2::test
