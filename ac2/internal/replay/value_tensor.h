// A tensor over the bytes of a value, for use on the current stream.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/tape/locked_tape.h"

namespace ac2::internal {

// Orders a use of the value's bytes on the current stream after their earlier uses on other streams. Uses are put in a
// row, because the last one may be an op that writes there.
void order_use_of(Value& value, const c10::Storage& bytes);

// The tensor that `meta` describes over a value that is at hand. Throws if the value was changed from outside.
at::Tensor tensor_of(LockedTape& tape, Value* value, const TensorMeta* meta);

}  // namespace ac2::internal
