// Memory whose bytes may change without any op: what LibTorch did not allocate (a NumPy array's, that of another
// process, whatever from_blob() was given), and what NumPy has a view of. Recorders ask once for each value from
// outside, and for what an op writes to.
//
//   if (may_change_unseen(tensor)) … // its bytes may be others by the time of backward
//
// Threads: any.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>

#include <cstddef>

namespace ac2::internal {

// The same where neither allocator nor DataPtr say it at once.
bool is_foreign_memory_slow(c10::StorageImpl& storage);

// Whether an allocator says itself that it made the memory, as LibTorch's for the CPU do.
inline bool is_of_an_allocator(c10::StorageImpl& storage) {
  const c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
  return storage.allocator() != nullptr && data.get_context() == data.get();
}

// Whether no allocator of LibTorch's, or of the user's own, made the memory. False for a file that LibTorch or the
// program has mapped such that nobody else writes to it: model weights are read so.
//
// Costs two comparisons for what an allocator made.
inline bool is_foreign_memory(c10::StorageImpl& storage) {
  if (is_of_an_allocator(storage)) {
    return false;
  }
  return storage._mutable_data_ptr_no_checks().get() != nullptr && is_foreign_memory_slow(storage);
}

// Whether Tensor.numpy() was called for a tensor of the storage at any time, by which LibTorch forbids that the storage
// is resized (torch/csrc/utils/tensor_numpy.cpp). No other storage that must not be resized (pinned memory, what
// torch::load() reads) has its memory from the CPU's allocator.
inline bool has_numpy_view(c10::StorageImpl& storage) {
  return C10_UNLIKELY(!storage.resizable()) && storage.device_type() == c10::kCPU && is_of_an_allocator(storage);
}

// Whether code that no dispatcher sees may write to the storage of `tensor`, which has one. A tensor that requires a
// gradient may not, unless its memory is foreign: NumPy's view of a weight is for reading, and a copy of each weight
// that a program has once printed would be for nothing.
inline bool may_change_unseen(const at::Tensor& tensor) {
  c10::StorageImpl& storage = *tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  return is_foreign_memory(storage) || (has_numpy_view(storage) && !tensor.requires_grad());
}

// Whether the bytes of two storages overlap.
inline bool share_addresses(c10::StorageImpl& a, c10::StorageImpl& b) {
  const auto* first = static_cast<const char*>(a._mutable_data_ptr_no_checks().get());
  const auto* second = static_cast<const char*>(b._mutable_data_ptr_no_checks().get());
  return first != nullptr && second != nullptr && a.device() == b.device() && first < second + b.nbytes() &&
         second < first + a.nbytes();
}

}  // namespace ac2::internal
