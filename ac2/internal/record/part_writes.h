// Writes to a part of a storage: hooks that see nothing of that part need no copy of the rest.
//
// LSTMCell computes its four gates in one storage and writes to them one by one, and autograd saves each of them. Each
// write makes a new value. If the hooks on the old one then got a copy of it (or, in a replay, a storage of its own),
// the storage would be held four times over.
//
// If the next value is later tagged to be held in another form, so are the parts that those hooks see.
#pragma once

#include <ATen/core/Tensor.h>

#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/tape/locked_tape.h"

namespace ac2::internal {

// Called before a write to the elements `written` of the storage of `tensor`. The storage holds `old`, and its next
// value will be saved by reference. If only hooks need `old`, and none of them sees an element of `written`, they go
// over to the next value, which is current from now on, and the result is true. Else nothing changes.
bool hand_on_hooks(LockedTape& tape, Value* old, const at::Tensor& tensor, const TensorMeta& written);

// Called after such a write, which has made the value `next` of `old`, where both are recomputed. The hooks on `old` go
// over to `next`, unless one of them sees what was written.
void hand_on_recomputed(LockedTape& tape, Value* old, Value* next, const at::Tensor& tensor, const TensorMeta& written);

}  // namespace ac2::internal
