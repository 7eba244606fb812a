// A tensor as codes of 8 or 4 bits and a range per block (see quantize_block.h).
//
//   c10::IValue packed = quantize(tensor, 8, key);
//   at::Tensor close = dequantize(packed);
//
// `key` decides how numbers are rounded: the same for the same key, whatever the number of threads. Blocks without
// codes (NaN, infinity, a range that overflows) are kept as they are.
// Takes float, double, half and bfloat16, on the CPU, on devices that device_kernels.h has kernels for, with the same
// codes, and on the meta device, where only sizes matter.
//
// Threads: any; works on LibTorch's.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>

namespace ac2::policies::internal {

bool can_quantize(at::ScalarType type);
bool can_quantize_on(at::DeviceType type);

// Bytes of n numbers: ⌈n·bits/8⌉ of codes, and two floats (doubles, if `tensor` is of those) a block; and those of the
// blocks kept as they are.
c10::IValue quantize(const at::Tensor& tensor, int bits, uint64_t key);

// The sizes, dtype and device of what was packed, and its strides if it was dense.
at::Tensor dequantize(const c10::IValue& packed);

}  // namespace ac2::policies::internal
