// A hash of a tensor's elements, by which verify mode notices that they have changed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ac2::internal {

// Takes in every bit of the elements of `tensor`, in the order of its indices, so that strides make no difference.
// Bitwise identical elements have the same fingerprint in one process; others have the same one once in 2^64. A meta
// tensor has no elements, and the fingerprint 0. `tensor` must have a plain storage.
//
// For a tensor that is not contiguous or not on the CPU it runs ops, below autograd and outside all regions. So the
// caller must not hold a lock.
uint64_t fingerprint(const at::Tensor& tensor);

}  // namespace ac2::internal
