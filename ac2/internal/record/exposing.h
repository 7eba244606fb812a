// Exposed storages: the program has said that code writes to them behind the dispatcher's back (ac2/expose.h).
//
// Ops that were recorded before keep the bytes that they took: a value that they can have computed again goes on
// without its storage, which from then on holds another value.
//
// Threads: any. Takes the locks of the tapes that are alive, one after the other.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstdint>

#include "ac2/internal/tape/locked_tape.h"

namespace ac2::internal {

// `tensor` has a plain storage. Returns the bytes that are held from now on where they would have been computed again.
int64_t expose_storage(const at::Tensor& tensor);

// A kernel has written to the storage of `tensor`, which was exposed and stood for `value`; `before` has the bytes of
// before, and is taken if something needs them. Returns the bytes that are held because of that.
int64_t follow_kernel(LockedTape& tape, Value* value, const at::Tensor& tensor, const c10::Storage& before);

}  // namespace ac2::internal
