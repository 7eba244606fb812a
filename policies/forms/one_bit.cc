#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <memory>

#include "ac2/form.h"
#include "ac2/internal/forms/form_access.h"
#include "policies/internal/quantize/bit_mask.h"
#include "policies/internal/quantize/quantized.h"

namespace ac2::forms {

namespace {

class OneBit final : public internal::HarmlessForm {
 public:
  std::string name() const override { return "one bit"; }
  bool is_exact() const override { return true; }
  bool takes(const FormInput& tensor) const override {
    return tensor.dtype == at::kBool ||
           (tensor.device.is_cpu() && policies::internal::may_have_two_values(tensor.dtype));
  }
  c10::IValue pack(const at::Tensor& tensor) const override { return policies::internal::pack_two_valued(tensor); }
  at::Tensor unpack(const c10::IValue& packed) const override { return policies::internal::unpack_bits(packed); }
};

}  // namespace

FormPtr one_bit() {
  return std::make_shared<const OneBit>();
}

}  // namespace ac2::forms
