// How many bytes the elements of tensors take: number of elements × bytes per element, whatever storages they lie in.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

#include "ac2/internal/libtorch/for_each_tensor.h"

namespace ac2::internal {

// 0 for an undefined tensor.
inline int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.numel() * static_cast<int64_t>(tensor.itemsize()) : 0;
}

// The bytes of all tensors in an op's arguments or results, those in lists included.
inline int64_t bytes_of(c10::ArrayRef<c10::IValue> values) {
  int64_t bytes = 0;
  for_each_tensor(values, [&bytes](const at::Tensor& tensor) { bytes += bytes_of(tensor); });
  return bytes;
}

}  // namespace ac2::internal
