// Kernels for codes and masks on devices other than the CPU, which quantize.cc and bit_mask.cc run there.
//
//   if (const DeviceKernels* kernels = device_kernels(tensor.device().type())) kernels->pack_bools(tensor, bits);
//
// Which devices there are kernels for is decided when a program is linked: a file with kernels registers them when it
// is loaded (quantize_cuda.cc, in builds with CUDA).
//
// Tensors are dense, of one device, and large enough; work is queued on its current stream.
// Threads: any.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ac2::policies::internal {

class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;

  // As quantize(), without the numbers of blocks that have no codes. Returns how many those are: waits for the device.
  virtual int64_t quantize(const at::Tensor& dense, int bits, uint64_t key, const at::Tensor& codes,
                           const at::Tensor& ranges) const = 0;
  // Leaves the numbers of blocks without codes as they are.
  virtual void dequantize(const at::Tensor& codes, const at::Tensor& ranges, int bits, const at::Tensor& out) const = 0;
  // Bits of which elements are not zero; of which numbers are not at most zero.
  virtual void pack_bools(const at::Tensor& dense, const at::Tensor& bits) const = 0;
  virtual void pack_positive(const at::Tensor& dense, const at::Tensor& bits) const = 0;
  // `zero` and `one` are the bits of an element.
  virtual void unpack_bits(const at::Tensor& bits, uint64_t zero, uint64_t one, const at::Tensor& out) const = 0;
};

// Null where there are none.
const DeviceKernels* device_kernels(at::DeviceType type);

// From a static initialiser; `kernels` lives as long as the program.
struct RegisterDeviceKernels {
  RegisterDeviceKernels(at::DeviceType type, const DeviceKernels* kernels);
};

}  // namespace ac2::policies::internal
