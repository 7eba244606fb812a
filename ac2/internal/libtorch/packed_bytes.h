// The storages in what a pack function has returned.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

#include "ac2/internal/libtorch/for_each_tensor.h"

namespace ac2::internal {

// Visits the storages of the tensors in `packed` that are not hidden in an object of the user's.
template <class Fn>
void for_each_storage(const c10::IValue& packed, const Fn& fn) {
  for_each_tensor(c10::ArrayRef<c10::IValue>(packed), [&fn](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.has_storage()) {
      fn(tensor.storage());
    }
  });
}

inline int64_t bytes_of_tensors_in(const c10::IValue& packed) {
  int64_t bytes = 0;
  for_each_storage(packed, [&](const c10::Storage& storage) { bytes += static_cast<int64_t>(storage.nbytes()); });
  return bytes;
}

}  // namespace ac2::internal
