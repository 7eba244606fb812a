#include "policies/internal/quantize/quantized.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "ac2/internal/forms/packing_cost.h"
#include "policies/internal/quantize/bit_mask.h"
#include "policies/internal/quantize/quantize.h"

namespace ac2::policies::internal {

bool may_have_two_values(at::ScalarType type) {
  return type == at::kBool || can_quantize(type);
}

bool Quantized::takes(const FormInput& tensor) const {
  return tensor.dtype == at::kBool || (can_quantize(tensor.dtype) && can_quantize_on(tensor.device.type()));
}

std::optional<FormEstimate> Quantized::estimate(const FormInput& tensor) const {
  const auto size = static_cast<int64_t>(c10::elementSize(tensor.dtype));
  const int64_t numbers = tensor.bytes / size;
  if (tensor.dtype == at::kBool) {
    return ac2::internal::estimate_in_copies(tensor, (numbers + 7) / 8, 1, 1);
  }
  const int64_t blocks = (numbers + kQuantizeBlock - 1) / kQuantizeBlock;
  const int64_t range = 2 * (tensor.dtype == at::kDouble ? 8 : 4);
  return ac2::internal::estimate_in_copies(tensor, (numbers * bits_ + 7) / 8 + range * blocks,
                                           ac2::internal::kPackCopies, ac2::internal::kUnpackCopies);
}

c10::IValue Quantized::pack(const at::Tensor& tensor) const {
  const at::ScalarType type = tensor.scalar_type();
  if (may_have_two_values(type)) {
    if (c10::IValue mask = pack_two_valued(tensor); !mask.isNone()) {
      return c10::ivalue::Tuple::create({false, std::move(mask)});
    }
  }
  if (!can_quantize(type) || !can_quantize_on(tensor.device().type())) {
    return {};
  }
  return c10::ivalue::Tuple::create({true, quantize(tensor, bits_, mix_64(key_ + packed_++))});
}

at::Tensor Quantized::unpack(const c10::IValue& packed) const {
  const auto& parts = packed.toTupleRef().elements();
  return parts[0].toBool() ? dequantize(parts[1]) : unpack_bits(parts[1]);
}

}  // namespace ac2::policies::internal
