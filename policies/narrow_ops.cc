#include "policies/narrow_ops.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/max.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "policies/internal/common/dense_layout.h"
#include "policies/internal/common/pack_ops.h"

namespace ac2::policies {

namespace {

struct Format {
  at::ScalarType type;
  double greatest;
  bool always_scaled;
};

Format format_of(at::ScalarType type) {
  switch (type) {
    case at::kBFloat16:
      return {type, 0x1.fep127, false};
    case at::kHalf:
      return {type, 65504, false};
    case at::kFloat8_e4m3fn:
      return {type, 448, true};
    case at::kFloat8_e5m2:
      return {type, 57344, true};
    default:
      TORCH_CHECK(false, "narrow_ops was given ", type,
                  "; expected BFloat16, Half, Float8_e4m3fn or Float8_e5m2. For integer codes see quantize_ops.");
  }
}

// Such that greatest · 2^exponent is at most, and more than half of, what the format holds.
int exponent_for(const Format& format, double greatest) {
  if (greatest == 0 || (!format.always_scaled && greatest <= format.greatest)) {
    return 0;
  }
  int own = 0, most = 0;
  const double fraction = std::frexp(greatest, &own), most_fraction = std::frexp(format.greatest, &most);
  // 2^120: as a float it is finite, and so is its inverse.
  return std::min(most - own - (fraction > most_fraction ? 1 : 0), 120);
}

// The type to scale numbers of `type` in, which has the powers of two too.
at::ScalarType scaled_in(at::ScalarType type) {
  return type == at::kHalf ? at::kFloat : type;
}

c10::IValue pack(const at::Tensor& tensor, const Format& format) {
  const at::Tensor dense = internal::densely(tensor);
  const bool narrows =
      at::isFloatingType(dense.scalar_type()) && at::elementSize(dense.scalar_type()) > at::elementSize(format.type);
  double greatest = 0;
  if (narrows && dense.numel() > 0 && !dense.is_meta()) {
    greatest = dense.abs().max().item<double>();
  }
  if (!narrows || !std::isfinite(greatest)) {
    // A copy, not the tensor itself: the program may write to it, and nothing would copy it first.
    return at::clone(tensor);
  }
  const int exponent = exponent_for(format, greatest);
  const at::Tensor scaled =
      exponent == 0 ? dense : dense.to(scaled_in(dense.scalar_type())).mul(std::ldexp(1.0, exponent));
  return c10::ivalue::Tuple::create({scaled.to(format.type), exponent, dense.scalar_type()});
}

at::Tensor unpack(const c10::IValue& packed) {
  if (packed.isTensor()) {
    return packed.toTensor();
  }
  const std::vector<c10::IValue> parts = packed.toTupleRef().elements().vec();
  const at::ScalarType type = parts[2].toScalarType();
  const int64_t exponent = parts[1].toInt();
  if (exponent == 0) {
    return parts[0].toTensor().to(type);
  }
  return parts[0].toTensor().to(scaled_in(type)).mul_(std::ldexp(1.0, static_cast<int>(-exponent))).to(type);
}

}  // namespace

Policy narrow_ops(const std::vector<std::string>& ops, at::ScalarType format) {
  const Format known = format_of(format);
  const SaveWithHooks hooks{[known](const at::Tensor& tensor) { return pack(tensor, known); }, unpack};
  return internal::pack_ops("narrow_ops", ops, /*is_inexact=*/true,
                            [hooks] { return [hooks](const std::string&) { return hooks; }; });
}

}  // namespace ac2::policies
