// The kernels of quantize_cuda_kernels.cu, given tensors.
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include "policies/internal/quantize/device_kernels.h"
#include "policies/internal/quantize/quantize_cuda_kernels.h"

namespace ac2::policies::internal {

namespace {

NumberType number_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return NumberType::FLOAT;
    case at::kDouble:
      return NumberType::DOUBLE;
    case at::kHalf:
      return NumberType::HALF;
    case at::kBFloat16:
      return NumberType::BFLOAT16;
    default:
      TORCH_INTERNAL_ASSERT(false, "no number of ", tensor.scalar_type());
  }
}

uint8_t* data_of(const at::Tensor& tensor) {
  return tensor.mutable_data_ptr<uint8_t>();
}

class CudaKernels final : public DeviceKernels {
 public:
  int64_t quantize(const at::Tensor& dense, int bits, uint64_t key, const at::Tensor& codes,
                   const at::Tensor& ranges) const override {
    const c10::cuda::CUDAGuard guard(dense.device());
    TORCH_CHECK(c10::cuda::currentStreamCaptureStatusMayInitCtx() == c10::cuda::CaptureStatus::None,
                "quantize_ops with 8 or 4 bits has to know on the host which blocks have numbers that no codes stand "
                "for, and cannot be used while a CUDA graph is captured. Save these ops as they are, or capture "
                "without.");
    const at::Tensor without_codes = at::zeros({}, dense.options().dtype(at::kInt));
    C10_CUDA_CHECK(launch_quantize(number_type(dense), bits, dense.const_data_ptr(), dense.numel(), key, data_of(codes),
                                   ranges.mutable_data_ptr(), without_codes.mutable_data_ptr<int>(),
                                   c10::cuda::getCurrentCUDAStream()));
    return without_codes.item<int>();
  }

  void dequantize(const at::Tensor& codes, const at::Tensor& ranges, int bits, const at::Tensor& out) const override {
    const c10::cuda::CUDAGuard guard(out.device());
    C10_CUDA_CHECK(launch_dequantize(number_type(out), bits, codes.const_data_ptr<uint8_t>(), ranges.const_data_ptr(),
                                     out.numel(), out.mutable_data_ptr(), c10::cuda::getCurrentCUDAStream()));
  }

  void pack_bools(const at::Tensor& dense, const at::Tensor& bits) const override {
    const c10::cuda::CUDAGuard guard(dense.device());
    C10_CUDA_CHECK(launch_pack_bools(static_cast<const uint8_t*>(dense.const_data_ptr()), dense.numel(), data_of(bits),
                                     c10::cuda::getCurrentCUDAStream()));
  }

  void pack_positive(const at::Tensor& dense, const at::Tensor& bits) const override {
    const c10::cuda::CUDAGuard guard(dense.device());
    C10_CUDA_CHECK(launch_pack_positive(number_type(dense), dense.const_data_ptr(), dense.numel(), data_of(bits),
                                        c10::cuda::getCurrentCUDAStream()));
  }

  void unpack_bits(const at::Tensor& bits, uint64_t zero, uint64_t one, const at::Tensor& out) const override {
    const c10::cuda::CUDAGuard guard(out.device());
    C10_CUDA_CHECK(launch_unpack_bits(static_cast<int>(out.element_size()), bits.const_data_ptr<uint8_t>(), out.numel(),
                                      zero, one, out.mutable_data_ptr(), c10::cuda::getCurrentCUDAStream()));
  }
};

const CudaKernels kCudaKernels;
const RegisterDeviceKernels kRegistered(at::kCUDA, &kCudaKernels);

}  // namespace

}  // namespace ac2::policies::internal
