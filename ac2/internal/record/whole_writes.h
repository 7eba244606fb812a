// Sees to a write that changes sparse, nested or quantised tensors which regions hold whole: through the tensor itself,
// through a tensor over its values, or through `.data`; in the region, after it, or on another thread.
//
//   keep_whole_values_over(storage);   // which is about to be written to
//   …run the op…
//
// An op that may be replayed has taken the bytes that stand there now. The region holds a copy of the whole tensor from
// then on. What autograd itself has saved stays with the tensor: backward then ends with the error about an inplace
// operation, or reads the new bytes, as in plain PyTorch.
//
// Not kept: what a backward under way on another thread has taken for autograd at that moment, and a tensor of a kind
// that clone() does not know. Such a tensor is an error in backward.
//
// Threads: any.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

namespace ac2::internal {

// A copy of a tensor without plain storage, made by no op that a region records. Undefined if clone() does not know the
// kind: the tensor is then held by reference, and a backward that needs it says that it has changed.
at::Tensor copy_of_whole(const at::Tensor& tensor);

// Throws if there is no memory for a copy: then nothing has changed.
void keep_whole_values_over(const c10::StorageImpl* storage);

}  // namespace ac2::internal
