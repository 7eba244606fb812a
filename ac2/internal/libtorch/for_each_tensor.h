// Visits the tensors among an op's arguments or results.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

namespace ac2::internal {

// Calls fn(tensor) for each tensor in order, including undefined ones and those in lists of tensors and in lists of
// such lists (c10d's ops have these).
template <class Fn>
void for_each_tensor(c10::ArrayRef<c10::IValue> values, Fn&& fn) {
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      fn(value.toTensor());
    } else if (value.isList()) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor()) {
          fn(element.toTensor());
        } else if (element.isList()) {
          for_each_tensor(c10::ArrayRef<c10::IValue>(element), fn);
        }
      }
    }
  }
}

}  // namespace ac2::internal
