// Writes that a version counter counts before the op runs. The kernels of ADInplaceOrView count when it has run, but
// that of Python's torch.library.custom_op counts first. The values of the region would look as if somebody had written
// to them.
//
//   note_early_count(tensor);   // the counter goes up next, and no byte is written until an op of the region does so
//
// Does nothing outside of regions, where no op will be recorded.
//
// Threads: any.
#pragma once

#include <ATen/core/Tensor.h>

namespace ac2::internal {

void note_early_count(const at::Tensor& tensor);

}  // namespace ac2::internal
