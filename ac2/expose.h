// Writes that no dispatcher sees: through data_ptr(), a NumPy array or a DLPack capsule over a tensor, or in a kernel
// that is launched with pointers.
//
//   at::Tensor mask = at::zeros({n});
//   ac2::expose(mask);
//   fill(mask.data_ptr<float>());           // a region would compute zeros again
//
// The Python package calls it wherever a tensor hands out its pointer.
//
// Threads: any.
#pragma once

#include <ATen/core/Tensor.h>

namespace ac2 {

// From now on code that no dispatcher sees may write to the storage of `tensor`. All regions that have computed it,
// open or over, hold it by reference where backward needs it, as they hold what came from outside, and no longer
// compute it again. The same holds for what ops of open regions write there later.
//
// Results that a region has computed from the tensor before are computed again from what the tensor held then, if the
// region recomputes the tensor.
//
// Not guaranteed: a tensor that the region saves, such as one from outside, is not copied. Results computed from it
// before a write may be computed again from what was written. Call expose() before the first op uses the tensor, or tag
// the results MUST_SAVE. Nor is a region that opens later told: call expose() again in it if its ops write to
// the tensor in place.
//
// Costs a look into the index of each open region and, if another region may know the tensor, a walk over the ops of
// those that are over and whose graphs still live.
//
// Does nothing for a tensor without a plain storage (sparse, nested), and for one that no region knows. A
// value that a SaveWithHooks has packed already stays as it was packed.
void expose(const at::Tensor& tensor);

}  // namespace ac2
