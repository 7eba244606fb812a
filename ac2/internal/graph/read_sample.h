// A sample of what an op has read and what no replay computes again (tensors from outside of the region, and saved
// results), by which a replay sees whether the bytes are still those.
//
//   input.sample = read_sample(tensor);                              // the op reads it
//   if (sample_of_bytes(tensor) != input.sample) …                   // a replay is about to
//
// Code that no dispatcher sees may write there meanwhile: through data_ptr(), or an array of NumPy's. Each read has a
// sample of its own, because the tensor may be written to between two of them. Rejected: one for a whole storage, of
// which others may write to a part that the op does not read.
//
// On the CPU alone: other devices would have to be waited for. Not seen is a write that the sample misses
// (byte_sample.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/COW.h>

#include <cstddef>
#include <cstdint>

#include "ac2/internal/graph/byte_sample.h"
#include "ac2/internal/libtorch/foreign_memory.h"

namespace ac2::internal {

// Of a tensor on the CPU without gaps, wherever its bytes lie now.
inline uint32_t sample_of_bytes(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  c10::StorageImpl& storage = *impl.unsafe_storage().unsafeGetStorageImpl();
  const auto* bytes = static_cast<const char*>(storage._mutable_data_ptr_no_checks().get());
  const size_t item = impl.itemsize();
  return byte_sample(bytes + static_cast<size_t>(impl.storage_offset()) * item,
                     static_cast<size_t>(impl.numel()) * item);
}

// `tensor` has a plain storage. 0 if no sample is taken: on other devices, of memory that LibTorch's allocators have
// not made, and of a tensor with gaps, in which others may write.
inline uint32_t read_sample(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (!impl.is_cpu() || impl.numel() == 0 || !impl.is_non_overlapping_and_dense()) {
    return 0;
  }
  c10::StorageImpl& storage = *impl.unsafe_storage().unsafeGetStorageImpl();
  // A copy-on-write storage has a context of its own, and moves to memory of its own when it is written to.
  if (!is_of_an_allocator(storage) && !c10::impl::cow::is_cow_data_ptr(storage._mutable_data_ptr_no_checks())) {
    return 0;
  }
  return sample_of_bytes(tensor);
}

}  // namespace ac2::internal
