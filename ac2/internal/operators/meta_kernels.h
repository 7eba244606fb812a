// Shapes without data for ops of networks that LibTorch computes on meta tensors only with the help of Python: layer
// norm, attention as the CPU has it, embedding, where.
#pragma once

namespace ac2::internal {

// Registers them on the meta device, process-wide and for good, those that have a kernel already excepted.
void install_meta_kernels();

}  // namespace ac2::internal
