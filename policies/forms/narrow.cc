#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/max.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "ac2/form.h"
#include "ac2/internal/forms/form_access.h"
#include "ac2/internal/forms/packing_cost.h"
#include "policies/internal/common/dense_layout.h"

namespace ac2::forms {

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
      TORCH_CHECK(false, "forms::narrow (which narrow_ops saves in) was given ", type,
                  "; expected BFloat16, Half, Float8_e4m3fn or Float8_e5m2. For integer codes see forms::quantized.");
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

class Narrow final : public internal::HarmlessForm {
 public:
  explicit Narrow(at::ScalarType format) : format_(format_of(format)) {}

  std::string name() const override { return c10::str("narrow ", format_.type); }
  bool is_exact() const override { return false; }
  bool takes(const FormInput& tensor) const override {
    return at::isFloatingType(tensor.dtype) && c10::elementSize(tensor.dtype) > c10::elementSize(format_.type);
  }
  // The greatest number is searched for, and the numbers are scaled and converted.
  std::optional<FormEstimate> estimate(const FormInput& tensor) const override {
    const auto size = static_cast<int64_t>(c10::elementSize(tensor.dtype));
    return internal::estimate_in_copies(
        tensor, tensor.bytes / size * static_cast<int64_t>(c10::elementSize(format_.type)), 3, 1);
  }

  c10::IValue pack(const at::Tensor& tensor) const override {
    const at::Tensor dense = policies::internal::densely(tensor);
    const double greatest = dense.numel() > 0 && !dense.is_meta() ? dense.abs().max().item<double>() : 0;
    if (!std::isfinite(greatest)) {
      return {};
    }
    const int exponent = exponent_for(format_, greatest);
    const at::Tensor scaled =
        exponent == 0 ? dense : dense.to(scaled_in(dense.scalar_type())).mul(std::ldexp(1.0, exponent));
    return c10::ivalue::Tuple::create({scaled.to(format_.type), exponent, dense.scalar_type()});
  }

  at::Tensor unpack(const c10::IValue& packed) const override {
    const std::vector<c10::IValue> parts = packed.toTupleRef().elements().vec();
    const at::ScalarType type = parts[2].toScalarType();
    const int64_t exponent = parts[1].toInt();
    if (exponent == 0) {
      return parts[0].toTensor().to(type);
    }
    return parts[0].toTensor().to(scaled_in(type)).mul_(std::ldexp(1.0, static_cast<int>(-exponent))).to(type);
  }

 private:
  const Format format_;
};

}  // namespace

FormPtr narrow(at::ScalarType format) {
  return std::make_shared<const Narrow>(format);
}

}  // namespace ac2::forms
