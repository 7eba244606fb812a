#include "policies/internal/common/dense_layout.h"

#include <ATen/ops/empty_strided.h>

#include <vector>

namespace ac2::policies::internal {

at::Tensor densely(const at::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
}

c10::IValue layout_of(const at::Tensor& dense) {
  return c10::ivalue::Tuple::create({dense.sizes(), dense.strides(), dense.scalar_type(), dense.device()});
}

at::Tensor empty_of(const c10::IValue& layout) {
  const std::vector<c10::IValue> parts = layout.toTupleRef().elements().vec();
  return at::empty_strided(parts[0].toIntVector(), parts[1].toIntVector(),
                           at::TensorOptions(parts[2].toScalarType()).device(parts[3].toDevice()));
}

}  // namespace ac2::policies::internal
