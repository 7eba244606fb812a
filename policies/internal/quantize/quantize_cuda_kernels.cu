#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "policies/internal/quantize/bit_lanes.h"
#include "policies/internal/quantize/quantize_cuda_kernels.h"
#include "policies/internal/quantize/quantize_lanes.h"

namespace ac2::policies::internal {

namespace {

constexpr unsigned kAllLanes = 0xffffffffU;

template <class C>
__device__ LaneRange<C> range_of_warp(LaneRange<C> range) {
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    range = merge(range, LaneRange<C>{__shfl_xor_sync(kAllLanes, range.low, distance),
                                      __shfl_xor_sync(kAllLanes, range.high, distance),
                                      __shfl_xor_sync(kAllLanes, range.not_finite, distance)});
  }
  return range;
}

// Threads that a multiprocessor has place for; each is left 32 registers, or 42.
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200)
constexpr int kThreadsAtOnce = 1536;
#else
constexpr int kThreadsAtOnce = 2048;
#endif

// Doubles take more registers than that.
template <class T>
constexpr int kGroupsAtOnce = sizeof(T) < sizeof(double) ? kThreadsAtOnce / kThreadsPerGroup : 1;

// A warp a block. All lanes of a warp have the same block, so that they leave together.
template <class T, int bits>
__global__ void __launch_bounds__(kThreadsPerGroup, kGroupsAtOnce<T>)
    quantize_kernel(const T* __restrict__ numbers, int64_t numel, bool vectors, uint64_t key,
                    uint8_t* __restrict__ codes, ComputedAs<T>* __restrict__ ranges, int* without_codes) {
  using C = ComputedAs<T>;
  const BlockLane at = block_lane_of(blockIdx.x, static_cast<int>(threadIdx.x));
  if (at.block >= blocks_of(numel)) return;
  const int length = length_of_block(numel, at.block);
  C x[kPerLane<T>];
  load_lane(numbers + at.block * kQuantizeBlock, length, at.lane, vectors, x);
  const BlockEnds<C> ends = ends_of(range_of_warp(range_of_lane(x, kPerLane<T>)), levels_of(bits));
  store_codes<T, bits>(x, ends, block_key(key, at.block), length, at.lane,
                       codes + at.block * (kQuantizeBlock * bits / 8));
  if (at.lane == 0) {
    ranges[2 * at.block] = ends.low;
    ranges[2 * at.block + 1] = ends.high;
    if (!ends.has_codes) atomicAdd(without_codes, 1);
  }
}

template <class T, int bits>
__global__ void __launch_bounds__(kThreadsPerGroup)
    dequantize_kernel(const uint8_t* __restrict__ codes, const ComputedAs<T>* __restrict__ ranges, int64_t numel,
                      bool vectors, T* __restrict__ numbers) {
  const BlockLane at = block_lane_of(blockIdx.x, static_cast<int>(threadIdx.x));
  if (at.block >= blocks_of(numel)) return;
  load_codes<T, bits>(codes + at.block * (kQuantizeBlock * bits / 8), ranges[2 * at.block], ranges[2 * at.block + 1],
                      length_of_block(numel, at.block), at.lane, vectors, numbers + at.block * kQuantizeBlock);
}

template <class T, class Flag>
__global__ void __launch_bounds__(kThreadsPerGroup)
    pack_bits_kernel(const T* __restrict__ elements, int64_t numel, bool vectors, Flag flag,
                     uint8_t* __restrict__ bits) {
  const BlockLane at = block_lane_of(blockIdx.x, static_cast<int>(threadIdx.x));
  if (at.block >= warps_of<T>(numel)) return;
  uint32_t word = bits_of_lane(elements, numel, at.block, at.lane, vectors, flag);
  for (int distance = kLanesPerWord<T> / 2; distance > 0; distance /= 2) {
    word |= __shfl_xor_sync(kAllLanes, word, distance);
  }
  store_bits<T>(word, numel, at.block, at.lane, bits);
}

template <class T>
__global__ void __launch_bounds__(kThreadsPerGroup)
    unpack_bits_kernel(const uint8_t* __restrict__ bits, int64_t numel, bool vectors, T zero, T one,
                       T* __restrict__ elements) {
  const BlockLane at = block_lane_of(blockIdx.x, static_cast<int>(threadIdx.x));
  if (at.block >= warps_of<T>(numel)) return;
  load_bits(bits, numel, at.block, at.lane, vectors, zero, one, elements);
}

// A grid has at most 2³¹ - 1 groups: 2⁴² numbers.
unsigned groups(int64_t warps) {
  return static_cast<unsigned>(groups_of_warps(warps));
}

// fn(T{}) for the type that `type` names.
template <class Fn>
cudaError_t with_type(NumberType type, Fn&& fn) {
  switch (type) {
    case NumberType::FLOAT:
      fn(float{});
      break;
    case NumberType::DOUBLE:
      fn(double{});
      break;
    case NumberType::HALF:
      fn(__half{});
      break;
    case NumberType::BFLOAT16:
      fn(__nv_bfloat16{});
      break;
  }
  return cudaGetLastError();
}

template <class T, int bits>
void start_quantize(const T* numbers, int64_t numel, uint64_t key, uint8_t* codes, void* ranges, int* without_codes,
                    cudaStream_t stream) {
  quantize_kernel<T, bits><<<groups(blocks_of(numel)), kThreadsPerGroup, 0, stream>>>(
      numbers, numel, is_aligned_16(numbers), key, codes, static_cast<ComputedAs<T>*>(ranges), without_codes);
}

template <class T, int bits>
void start_dequantize(const uint8_t* codes, const void* ranges, int64_t numel, T* numbers, cudaStream_t stream) {
  dequantize_kernel<T, bits><<<groups(blocks_of(numel)), kThreadsPerGroup, 0, stream>>>(
      codes, static_cast<const ComputedAs<T>*>(ranges), numel, is_aligned_16(numbers), numbers);
}

template <class T>
cudaError_t start_unpack(const uint8_t* bits, int64_t numel, uint64_t zero, uint64_t one, void* elements,
                         cudaStream_t stream) {
  unpack_bits_kernel<<<groups(warps_of<T>(numel)), kThreadsPerGroup, 0, stream>>>(
      bits, numel, is_aligned_16(elements), static_cast<T>(zero), static_cast<T>(one), static_cast<T*>(elements));
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_quantize(NumberType type, int bits, const void* numbers, int64_t numel, uint64_t key, uint8_t* codes,
                            void* ranges, int* without_codes, cudaStream_t stream) {
  if (numel == 0) return cudaSuccess;
  return with_type(type, [&](auto number) {
    const auto* of_type = static_cast<const decltype(number)*>(numbers);
    using T = decltype(number);
    if (bits == 8) {
      start_quantize<T, 8>(of_type, numel, key, codes, ranges, without_codes, stream);
    } else {
      start_quantize<T, 4>(of_type, numel, key, codes, ranges, without_codes, stream);
    }
  });
}

cudaError_t launch_dequantize(NumberType type, int bits, const uint8_t* codes, const void* ranges, int64_t numel,
                              void* numbers, cudaStream_t stream) {
  if (numel == 0) return cudaSuccess;
  return with_type(type, [&](auto number) {
    using T = decltype(number);
    if (bits == 8) {
      start_dequantize<T, 8>(codes, ranges, numel, static_cast<T*>(numbers), stream);
    } else {
      start_dequantize<T, 4>(codes, ranges, numel, static_cast<T*>(numbers), stream);
    }
  });
}

cudaError_t launch_pack_positive(NumberType type, const void* numbers, int64_t numel, uint8_t* bits,
                                 cudaStream_t stream) {
  if (numel == 0) return cudaSuccess;
  return with_type(type, [&](auto number) {
    using T = decltype(number);
    pack_bits_kernel<<<groups(warps_of<T>(numel)), kThreadsPerGroup, 0, stream>>>(
        static_cast<const T*>(numbers), numel, is_aligned_16(numbers), IsPositive(), bits);
  });
}

cudaError_t launch_pack_bools(const uint8_t* bools, int64_t numel, uint8_t* bits, cudaStream_t stream) {
  if (numel == 0) return cudaSuccess;
  pack_bits_kernel<<<groups(warps_of<uint8_t>(numel)), kThreadsPerGroup, 0, stream>>>(
      bools, numel, is_aligned_16(bools), IsTrue(), bits);
  return cudaGetLastError();
}

cudaError_t launch_unpack_bits(int element_size, const uint8_t* bits, int64_t numel, uint64_t zero, uint64_t one,
                               void* elements, cudaStream_t stream) {
  if (numel == 0) return cudaSuccess;
  switch (element_size) {
    case 1:
      return start_unpack<uint8_t>(bits, numel, zero, one, elements, stream);
    case 2:
      return start_unpack<uint16_t>(bits, numel, zero, one, elements, stream);
    case 4:
      return start_unpack<uint32_t>(bits, numel, zero, one, elements, stream);
    case 8:
      return start_unpack<uint64_t>(bits, numel, zero, one, elements, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace ac2::policies::internal
