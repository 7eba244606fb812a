// The first read of what an op has made, by another op or by autograd. A kernel of the program's own may have written
// there meanwhile, through data_ptr(), past every dispatcher. A sample of the bytes tells:
//
//   value->set_sample(sample_of(storage));         // an op has made it, and a replay would make it again
//   if (is_changed_at_first_read(value, tensor)) … // by LockedTape::is_read()
//
// Nothing computes the kernel's bytes again, so the value is then held as one from outside is.
//
// On the CPU alone: other devices would have to be waited for. Not seen are a write after the first read, which may
// make ops before it wrong, and one that the sample misses (graph/byte_sample.h).
//
// Threads: guarded by the tape's lock.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/macros/Macros.h>

#include <cstdint>
#include <string>

#include "ac2/internal/graph/byte_sample.h"
#include "ac2/internal/graph/value.h"

namespace ac2::internal {

// Of a storage on the CPU. 0 if its bytes are not to be had as they lie.
inline uint32_t sample_of(c10::StorageImpl& storage) {
  const at::DataPtr& bytes = storage._mutable_data_ptr_no_checks();  // of a copy-on-write storage it copies nothing
  return C10_LIKELY(bytes.get() != nullptr) ? byte_sample(bytes.get(), storage.nbytes()) : 0;
}

// Somebody has written to the storage of `tensor`, for which `value` stands, since its op made it. Asked once.
C10_NOINLINE bool is_changed_at_first_read(Value& value, const at::Tensor& tensor);

// The warning about a kernel that has written to the result of `producer`, and how many bytes that is.
std::string text_of_unseen_kernel(const Node& producer, int64_t bytes);

}  // namespace ac2::internal
