// Tensors that lie at the same addresses without sharing a storage: the memory of one of them may change unseen
// (libtorch/foreign_memory.h), and a write there is a write to all of them.
//
//   if (at::Tensor alias = alias_of(value, written); alias.defined()) …   // what else the write changes
//   tell_of_write_to_aliases(tensor, except);                             // all tapes of the process
//
// Threads: any.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

// A tensor over the storage of `value`, if that is another one at addresses of `written`, and bytes of it may be read
// again; else undefined. Foreign values need none: no replay reads them. Under the lock of the value's tape.
at::Tensor alias_of(const Value& value, c10::StorageImpl& written);

// Sees to a write to `tensor`, which may change unseen, for all tapes but `except`, which records the op. Looks at
// every storage that they know. Without a lock.
void tell_of_write_to_aliases(const at::Tensor& tensor, const Tape* except);

}  // namespace ac2::internal
