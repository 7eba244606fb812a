// A tensor's elements in one number.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ac2::internal {

// Of every bit of `tensor`'s elements in the order of its indices; strides make no difference. Equal elements have
// equal fingerprints within one process; unequal ones have equal ones once in 2^64. Meta tensors have no elements.
// `tensor` must have a plain storage.
//
// Runs ops for tensors that are not contiguous or not on the CPU, below autograd and outside all regions: no lock may
// be held.
uint64_t fingerprint(const at::Tensor& tensor);

}  // namespace ac2::internal
