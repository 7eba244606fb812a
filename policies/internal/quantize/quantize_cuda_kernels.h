// CUDA kernels of block quantisation and of masks: pointers and a stream, nothing of LibTorch.
//
// Pointers are of the current device's memory. Each function starts one kernel on `stream` and returns what
// cudaGetLastError() says. See quantize_lanes.h and bit_lanes.h for what is computed.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace ac2::policies::internal {

enum class NumberType : uint8_t { FLOAT, DOUBLE, HALF, BFLOAT16 };

// `ranges`: two floats (doubles, of doubles) a block. Adds to `without_codes` how many blocks have none.
cudaError_t launch_quantize(NumberType type, int bits, const void* numbers, int64_t numel, uint64_t key, uint8_t* codes,
                            void* ranges, int* without_codes, cudaStream_t stream);

// Leaves the numbers of blocks without codes as they are.
cudaError_t launch_dequantize(NumberType type, int bits, const uint8_t* codes, const void* ranges, int64_t numel,
                              void* numbers, cudaStream_t stream);

// Which numbers are positive, or NaN.
cudaError_t launch_pack_positive(NumberType type, const void* numbers, int64_t numel, uint8_t* bits,
                                 cudaStream_t stream);

// Which bytes are not zero.
cudaError_t launch_pack_bools(const uint8_t* bools, int64_t numel, uint8_t* bits, cudaStream_t stream);

// Elements of 1, 2, 4 or 8 bytes.
cudaError_t launch_unpack_bits(int element_size, const uint8_t* bits, int64_t numel, uint64_t zero, uint64_t one,
                               void* elements, cudaStream_t stream);

}  // namespace ac2::policies::internal
