// Block quantisation, one number at a time: the arithmetic that CPU loops and device kernels share.
//
//   const BlockScale<float> scale = block_scale(low, high, levels_of(8));
//   code = quantize(x, scale, levels, random_24(key, i));
//   x' = dequantize(code, scale, levels);
//
// A block is kQuantizeBlock numbers in the order of memory, of which the least and the greatest are kept, and for each
// number a code between 0 (the least) and `levels` (the greatest). Both ends come back exact. Rounding is stochastic:
// up with the probability that makes the mean right (Gupta et al., "Deep Learning with Limited Numerical Precision",
// 2015; for activations: Chen et al., "ActNN", 2021). C is float, or double for doubles.
//
// Rejected: random numbers of the default generator or another one of LibTorch's (both are sequential, and the first
// would change the program's draws); scale and zero in half precision (an eighth of a bit a number, for an error as
// large as the codes').
//
// Needs nothing of LibTorch; compiles as C++ and as CUDA.
#pragma once

#include <cstdint>
#include <limits>

#if defined(__CUDACC__) || defined(__HIPCC__)
#define AC2_HOST_DEVICE __host__ __device__
#else
#define AC2_HOST_DEVICE
#endif

namespace ac2::policies::internal {

// Numbers that share a range. Two floats a block are 0.25 bits a number.
constexpr int64_t kQuantizeBlock = 256;

AC2_HOST_DEVICE constexpr int32_t levels_of(int bits) {
  return (1 << bits) - 1;
}

template <class C>
struct BlockScale {
  C low;
  C high;
  C step;            // between codes
  C codes_per_unit;  // its inverse
};

template <class C>
AC2_HOST_DEVICE inline BlockScale<C> block_scale(C low, C high, int32_t levels) {
  const C range = high - low;
  return {low, high, range / static_cast<C>(levels), range > 0 ? static_cast<C>(levels) / range : C(0)};
}

// False for a block with NaNs or infinities, whose range overflows, or is so small that its inverse does: no codes for
// these.
template <class C>
AC2_HOST_DEVICE inline bool is_quantizable(C low, C high, int32_t levels) {
  const C range = high - low;
  constexpr C kMax = std::numeric_limits<C>::max();
  return range == 0 || (range > 0 && range <= kMax && static_cast<C>(levels) / range <= kMax);
}

// The finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
AC2_HOST_DEVICE inline uint64_t mix_64(uint64_t z) {
  z += 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

// The key of one block, made of the tensor's `key`. There is no state, so that blocks can be done in any order.
AC2_HOST_DEVICE inline uint64_t block_key(uint64_t key, int64_t block) {
  return mix_64(key + static_cast<uint64_t>(block) * 0x9e3779b97f4a7c15U);
}

// 24 random bits for number `i` of a block. The mixing is lowbias32 of C. Wellons' hash-prospector; 32-bit products
// alone, which compilers vectorise.
AC2_HOST_DEVICE inline uint32_t random_24(uint64_t block_key, uint32_t i) {
  uint32_t x = static_cast<uint32_t>(block_key) + i * 0x9e3779b9U;
  x = (x ^ (x >> 16)) * 0x7feb352dU;
  x = (x ^ (x >> 15)) * 0x846ca68bU;
  x = (x ^ (x >> 16)) ^ static_cast<uint32_t>(block_key >> 32);
  return x >> 8;
}

template <class C>
struct WholePart {
  int32_t integer;
  C number;  // the same
};

// The whole part of x, where 0 <= x < 2²².
template <class C>
AC2_HOST_DEVICE inline WholePart<C> whole_part(C x) {
#ifdef __CUDA_ARCH__
  // Conversions have a quarter of an addition's throughput there. Between 2²³ and 2²⁴ floats are the integers.
  if constexpr (sizeof(C) == sizeof(float)) {
    const float shifted = __fadd_rd(x, 0x1p23F);
    return {__float_as_int(shifted) - __float_as_int(0x1p23F), shifted - 0x1p23F};
  }
#endif
  const auto integer = static_cast<int32_t>(x);
  return {integer, static_cast<C>(integer)};
}

template <class C>
AC2_HOST_DEVICE inline int32_t quantize(C x, const BlockScale<C>& scale, int32_t levels, uint32_t random_24) {
  C codes = (x - scale.low) * scale.codes_per_unit;
  codes = codes < static_cast<C>(levels) ? codes : static_cast<C>(levels);
  const WholePart<C> below = whole_part(codes);
  // Compared, not added and truncated: a sum would be rounded, and the mean wrong.
  const C rest = (codes - below.number) * C(0x1p24);
  return below.integer + (static_cast<C>(static_cast<int32_t>(random_24)) < rest ? 1 : 0);
}

template <class C>
AC2_HOST_DEVICE inline C dequantize(int32_t code, const BlockScale<C>& scale, int32_t levels) {
  const C x = scale.low + static_cast<C>(code) * scale.step;
  return code == levels ? scale.high : x;
}

}  // namespace ac2::policies::internal
