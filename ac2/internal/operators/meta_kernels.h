// Kernels for meta tensors, which have shapes and no data. LibTorch has these kernels only in Python: layer norm, the
// attention of the CPU, embedding, where. Plans of models that fit into no machine need them.
#pragma once

namespace ac2::internal {

// Registers them for the whole process and for good, except for ops that have a kernel for meta tensors already.
// Threads: any; only the first call does something.
void install_meta_kernels();

}  // namespace ac2::internal
