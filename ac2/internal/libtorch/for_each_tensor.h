// Visits the tensors among an op's arguments or results, or in what a pack function has returned.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/macros/Macros.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

namespace ac2::internal {

// Calls fn(tensor, place) for each tensor in `value`, in order, including undefined ones. `place` is the tensor's index
// in the list or tuple that `value` is, and -1 if `value` is a tensor. Tensors in lists of lists (c10d's ops have
// these) and in tuples of tuples have the place of the inner list or tuple. The values nest as deep as an op's type
// says.
template <class Fn>
void for_each_tensor_at(const c10::IValue& value, Fn&& fn, int32_t place = -1) {
  const auto visit = [&fn, place](c10::ArrayRef<c10::IValue> elements) {
    for (size_t i = 0; i < elements.size(); ++i) {
      for_each_tensor_at(elements[i], fn, place < 0 ? static_cast<int32_t>(i) : place);
    }
  };
  if (value.isTensor()) {
    fn(value.toTensor(), place);
  } else if (value.isList()) {
    visit(value.toListRef());
  } else if (value.isTuple()) {
    visit(value.toTupleRef().elements().asArrayRef());
  }
}

// Calls fn(tensor) for each of them.
template <class Fn>
void for_each_tensor(c10::ArrayRef<c10::IValue> values, Fn&& fn) {
  auto visit = [&fn](const at::Tensor& tensor, int32_t) { fn(tensor); };
  for (const c10::IValue& value : values) {
    if (C10_LIKELY(value.isTensor())) {
      fn(value.toTensor());
    } else {
      for_each_tensor_at(value, visit);
    }
  }
}

}  // namespace ac2::internal
