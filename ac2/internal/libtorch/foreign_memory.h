// Memory that LibTorch did not allocate: a NumPy array's, that of another process, whatever from_blob() was given. Its
// bytes may change without any op. Recorders ask once for each value from outside, and for what an op writes to.
//
//   if (is_foreign_memory(storage)) … // its bytes may be others by the time of backward
//
// Threads: any.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>

#include <cstddef>

namespace ac2::internal {

// The same where neither allocator nor DataPtr say it at once.
bool is_foreign_memory_slow(c10::StorageImpl& storage);

// Whether no allocator of LibTorch's, or of the user's own, made the memory. False for a file that LibTorch or the
// program has mapped such that nobody else writes to it: model weights are read so.
//
// Costs two comparisons for what an allocator made.
inline bool is_foreign_memory(c10::StorageImpl& storage) {
  const c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
  if (storage.allocator() != nullptr && data.get_context() == data.get()) {
    return false;
  }
  return data.get() != nullptr && is_foreign_memory_slow(storage);
}

// Whether the bytes of two storages overlap.
inline bool share_addresses(c10::StorageImpl& a, c10::StorageImpl& b) {
  const auto* first = static_cast<const char*>(a._mutable_data_ptr_no_checks().get());
  const auto* second = static_cast<const char*>(b._mutable_data_ptr_no_checks().get());
  return first != nullptr && second != nullptr && a.device() == b.device() && first < second + b.nbytes() &&
         second < first + a.nbytes();
}

}  // namespace ac2::internal
