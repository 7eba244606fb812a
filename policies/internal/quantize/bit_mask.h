// A tensor as one bit an element, where one bit is enough.
//
//   c10::IValue packed = pack_two_valued(mask);       // null if it has more than two values
//   c10::IValue packed = pack_positive(result);       // of a ReLU: only which elements are greater than zero
//   at::Tensor mask = unpack_bits(packed);
//
// On the CPU, and on devices that device_kernels.h has kernels for. Elsewhere than on the CPU only bools are taken for
// two-valued: nothing need be looked at, so that nothing waits for the device.
// Threads: any; works on LibTorch's.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace ac2::policies::internal {

// ⌈n/8⌉ bytes, and the two values. Comes back bitwise identical, NaNs and signs of zeros included. None for tensors
// with more than two values, that are found out after the first few; for dtypes of more than eight bytes; for devices
// without kernels, but for the meta device.
c10::IValue pack_two_valued(const at::Tensor& tensor);

// ⌈n/8⌉ bytes. Comes back as 0 where x <= 0, and 1 elsewhere (so for NaN): a tensor that threshold_backward at 0 takes
// for the packed one. float, double, half, bfloat16; none for others, and on devices without kernels.
c10::IValue pack_positive(const at::Tensor& tensor);

// The sizes, dtype and device of what was packed, and its strides if it was dense.
at::Tensor unpack_bits(const c10::IValue& packed);

}  // namespace ac2::policies::internal
