// Exposed storages: the program has said that code writes to them behind the dispatcher's back (ac2/expose.h).
//
// Ops that were recorded before keep the bytes that they took: a value that they can have computed again goes on
// without its storage, which from then on holds another value.
//
// Threads: any. Takes the locks of the tapes that are alive, one after the other.
#pragma once

#include <ATen/core/Tensor.h>

namespace ac2::internal {

// `tensor` has a plain storage.
void expose_storage(const at::Tensor& tensor);

}  // namespace ac2::internal
