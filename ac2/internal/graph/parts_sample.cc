#include "ac2/internal/graph/parts_sample.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/core/Tensor.h>

#include <cstddef>

#include "ac2/internal/graph/byte_sample.h"

namespace ac2::internal {

namespace {

uint32_t sample_of_part(const at::Tensor& part) {
  if (!part.defined() || !part.is_cpu() || !part.has_storage() || !part.is_contiguous()) {
    return 0;
  }
  const size_t nbytes = static_cast<size_t>(part.numel()) * part.itemsize();
  // The program may have made the storage smaller, which the tensor does not say.
  if (part.storage().nbytes() < static_cast<size_t>(part.storage_offset()) * part.itemsize() + nbytes) {
    return 0;
  }
  return byte_sample(part.const_data_ptr(), nbytes);
}

// 0 if one of both is not known.
uint32_t together(uint32_t first, uint32_t second) {
  return first == 0 || second == 0 ? 0 : (first * 31 + second) | 1;
}

// The tensor may be a view of a part of its storage, of which others write to the rest.
uint32_t sample_of_nested(const at::native::NestedTensorImpl& tensor) {
  const c10::Storage& storage = tensor.unsafe_storage();
  const size_t nbytes = storage ? storage.nbytes() : 0;
  if (!tensor.is_cpu() || nbytes != static_cast<size_t>(tensor.numel()) * tensor.itemsize()) {
    return 0;
  }
  return byte_sample(storage.data(), nbytes);
}

}  // namespace

uint32_t parts_sample(const c10::TensorImpl& tensor) {
  if (const auto* coo = dynamic_cast<const at::SparseTensorImpl*>(&tensor)) {
    return together(sample_of_part(coo->values()), sample_of_part(coo->indices()));
  }
  if (const auto* compressed = dynamic_cast<const at::SparseCsrTensorImpl*>(&tensor)) {
    return sample_of_part(compressed->values());
  }
  if (const auto* nested = dynamic_cast<const at::native::NestedTensorImpl*>(&tensor)) {
    return sample_of_nested(*nested);
  }
  return 0;
}

}  // namespace ac2::internal
