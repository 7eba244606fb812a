// NumPy gets a view of a tensor, through which its bytes may change at any time from then on.
//
//   before_numpy_view(tensor);
//   …Tensor.numpy()…
//
// Threads: any.
#pragma once

#include <ATen/core/Tensor.h>

namespace ac2::internal {

// Exposes the tensor (ac2/expose.h), and lets all regions, open or over, copy now what ops may still have to read
// there. Does nothing for a tensor without a plain storage, and for one that no region knows.
void before_numpy_view(const at::Tensor& tensor);

}  // namespace ac2::internal
