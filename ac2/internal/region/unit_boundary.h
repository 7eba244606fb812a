// Tensors that enter or leave a part of the program whose parameters are there only while that part runs.
//
//   save_at_boundary(tensor);   // no replay goes past it
//
// Nothing happens outside a region, to what the region saves in whatever form already, and to a tensor for which a tag
// has decided.
//
// Threads: concerns the region of the calling thread.
#pragma once

#include <ATen/core/Tensor.h>

namespace ac2::internal {

void save_at_boundary(const at::Tensor& tensor);

}  // namespace ac2::internal
