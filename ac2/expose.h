// Writes that no dispatcher sees: through data_ptr(), a NumPy array or a DLPack capsule over a tensor, or in a kernel
// that is launched with pointers.
//
//   at::Tensor mask = at::zeros({n});
//   ac2::expose(mask);
//   fill(mask.data_ptr<float>());           // a region would compute zeros again
//
// The Python package tells regions of the pointers that tensors hand out (docs/reliability.md says where it copies).
//
// Threads: any.
#pragma once

#include <ATen/core/Tensor.h>

namespace ac2 {

// From now on code that no dispatcher sees may write to the storage of `tensor`. All regions that have computed it,
// open or over, hold it by reference where backward needs it, as they hold what came from outside, and no longer
// compute it again. The same holds for what ops of open regions write there later.
//
// Results that regions have computed from the tensor before are computed again from what the tensor holds now: it is
// computed again itself, or, if a region saves it or took it from outside, copied by this call where such results may
// be needed again. So a call between a region and its backward is right too, and the copies count in
// `stats().copied_bytes`. What autograd has saved of the tensor follows the writes, as in plain PyTorch.
//
// Not guaranteed: one call stands for the writes that come before the next op of a region takes the tensor. Call
// expose() again before later writes. Nor is a region that opens later told: call expose() again in it if its ops write
// to the tensor in place.
//
// Throws if there is no memory for a copy; then nothing has changed.
//
// Costs a look into the index of each open region and, if another region may know the tensor, a walk over the ops of
// those that are over and whose graphs still live.
//
// Does nothing for a tensor without a plain storage (sparse, nested), and for one that no region knows. A
// value that a SaveWithHooks has packed already stays as it was packed.
void expose(const at::Tensor& tensor);

}  // namespace ac2
