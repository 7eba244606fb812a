// Writes that a version counter counts before the op runs. The kernels of ADInplaceOrView count when it has run, but
// that of Python's torch.library.custom_op counts first. The values of the region would look as if somebody had written
// to them.
//
//   note_early_count(tensor);   // the counter goes up next, and no byte is written until an op does so
//
// In a region the op that comes tells its tape and all others of the write. Where no region is open the write is told
// of here: an op that was registered after the last region was opened is not seen to write (write_watch.h).
//
// Threads: any.
#pragma once

#include <ATen/core/Tensor.h>

namespace ac2::internal {

void note_early_count(const at::Tensor& tensor);

}  // namespace ac2::internal
