// The shape of a packed tensor, as an IValue that goes with its bytes, and a tensor of that shape again.
//
//   const at::Tensor dense = densely(tensor);
//   packed = Tuple{layout_of(dense), bytes…};
//   at::Tensor out = empty_of(packed[0]);   // the same strides: element i in memory is element i of `dense`
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace ac2::policies::internal {

// `tensor` itself if its elements fill one stretch of memory without gaps or overlaps, else a contiguous copy.
at::Tensor densely(const at::Tensor& tensor);

// Sizes, strides, dtype and device. Of no bytes that anyone counts.
c10::IValue layout_of(const at::Tensor& dense);

at::Tensor empty_of(const c10::IValue& layout);

}  // namespace ac2::policies::internal
