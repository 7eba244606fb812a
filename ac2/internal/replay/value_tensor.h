// A tensor over the bytes of a value, for whoever is about to use it on the current stream.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/tape/locked_tape.h"

namespace ac2::internal {

// Whoever is about to use the value's bytes does so on the current stream. Users on several streams are put in a row:
// the last may be an op that writes there.
void order_use_of(Value& value, const c10::Storage& bytes);

// The tensor that `meta` describes over a value that is at hand. Throws if the value was changed from outside.
at::Tensor tensor_of(LockedTape& tape, Value* value, const TensorMeta* meta);

}  // namespace ac2::internal
