// Block quantisation as a warp does it. The functions are those that each of its 32 lanes runs on one block of
// kQuantizeBlock numbers.
//
// A lane has kVectors vectors of 16 bytes, each beside those of its neighbours, so that a warp's loads and stores are
// whole lines. Codes and ranges are bitwise those of the loops for CPUs (quantize.cc): of a range neither the
// order of comparisons nor that of the sum below matters, and the arithmetic is that of quantize_block.h.
//
//   for each lane:  numbers = load_lane(...);  range = range_of_lane(numbers)
//   merge() all ranges of the warp, in any order
//   for each lane:  store_codes(...)
//
// Needs nothing of LibTorch and no other lane; compiles as C++, where tests run it lane after lane, and as CUDA, built
// without fused multiply-add (--fmad=false), which rounds differently.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "policies/internal/quantize/quantize_block.h"

namespace ac2::policies::internal {

constexpr int kLanes = 32;
constexpr int kWarpsPerGroup = 8;  // of threads that start together
constexpr int kThreadsPerGroup = kLanes * kWarpsPerGroup;

template <class T>
constexpr int kPerVector = 16 / static_cast<int>(sizeof(T));
template <class T>
constexpr int kVectors = static_cast<int>(kQuantizeBlock) / (kLanes * kPerVector<T>);
template <class T>
constexpr int kPerLane = kVectors<T>* kPerVector<T>;

// Numbers are computed with as floats, doubles as doubles.
template <class T>
using ComputedAs = std::conditional_t<std::is_same_v<T, double>, double, float>;

inline bool is_aligned_16(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

#ifdef __CUDACC__
using Bytes16 = uint4;  // one instruction
#else
struct alignas(16) Bytes16 {
  uint32_t x, y, z, w;
};
#endif

template <class T>
AC2_HOST_DEVICE inline void load_16(const T* from, T* to) {
  const Bytes16 bytes = *reinterpret_cast<const Bytes16*>(from);
  memcpy(static_cast<void*>(to), &bytes, sizeof bytes);
}

template <class T>
AC2_HOST_DEVICE inline void store_16(const T* from, T* to) {
  Bytes16 bytes;
  memcpy(&bytes, static_cast<const void*>(from), sizeof bytes);
#ifdef __CUDA_ARCH__
  __stwb(reinterpret_cast<Bytes16*>(to), bytes);  // an assignment is split into the numbers it is made of
#else
  *reinterpret_cast<Bytes16*>(to) = bytes;
#endif
}

// The place of a lane's i-th number in its block, in the order of memory.
template <class T>
AC2_HOST_DEVICE constexpr int number_in_block(int lane, int i) {
  return (i / kPerVector<T>)*kLanes * kPerVector<T> + lane * kPerVector<T> + i % kPerVector<T>;
}

// The block that the thread `thread` of group `group` works on, and its lane there.
struct BlockLane {
  int64_t block;
  int lane;
};

AC2_HOST_DEVICE inline BlockLane block_lane_of(int64_t group, int thread) {
  return {group * kWarpsPerGroup + thread / kLanes, thread % kLanes};
}

AC2_HOST_DEVICE constexpr int64_t blocks_of(int64_t numel) {
  return (numel + kQuantizeBlock - 1) / kQuantizeBlock;
}

AC2_HOST_DEVICE constexpr int64_t groups_of_warps(int64_t warps) {
  return (warps + kWarpsPerGroup - 1) / kWarpsPerGroup;
}

AC2_HOST_DEVICE inline int length_of_block(int64_t numel, int64_t block) {
  const int64_t left = numel - block * kQuantizeBlock;
  return static_cast<int>(left < kQuantizeBlock ? left : kQuantizeBlock);
}

// `numbers` are those of the block. Past the end stands the first of them again. By vectors if `vectors`, which takes
// a whole block at a multiple of 16 bytes.
template <class T>
AC2_HOST_DEVICE inline void load_lane(const T* numbers, int length, int lane, bool vectors, ComputedAs<T>* out) {
  if (vectors && length == kQuantizeBlock) {
    T loaded[kPerLane<T>];
    for (int v = 0; v < kVectors<T>; ++v) {
      load_16(numbers + number_in_block<T>(lane, v * kPerVector<T>), loaded + v * kPerVector<T>);
    }
    for (int i = 0; i < kPerLane<T>; ++i) out[i] = static_cast<ComputedAs<T>>(loaded[i]);
    return;
  }
  for (int i = 0; i < kPerLane<T>; ++i) {
    const int number = number_in_block<T>(lane, i);
    out[i] = static_cast<ComputedAs<T>>(numbers[number < length ? number : 0]);
  }
}

// The least, the greatest, and a zero, or NaN if not all numbers are finite.
template <class C>
struct LaneRange {
  C low;
  C high;
  C not_finite;
};

// min and max are one instruction on a device. Their results for NaNs do not matter: not_finite has seen the NaNs.
template <class C>
AC2_HOST_DEVICE inline C lesser(C a, C b) {
#ifdef __CUDA_ARCH__
  return ::min(a, b);
#else
  return b < a ? b : a;
#endif
}

template <class C>
AC2_HOST_DEVICE inline C greater(C a, C b) {
#ifdef __CUDA_ARCH__
  return ::max(a, b);
#else
  return b > a ? b : a;
#endif
}

// x · 0 + zero, where the product is exact or NaN, so that one rounding or two are the same.
template <class C>
AC2_HOST_DEVICE inline C add_not_finite(C x, C zero) {
#ifdef __CUDA_ARCH__
  return fma(x, C(0), zero);
#else
  return x * C(0) + zero;
#endif
}

template <class C>
AC2_HOST_DEVICE inline LaneRange<C> merge(const LaneRange<C>& a, const LaneRange<C>& b) {
  return {lesser(a.low, b.low), greater(a.high, b.high), a.not_finite + b.not_finite};
}

template <class C>
AC2_HOST_DEVICE inline LaneRange<C> range_of_lane(const C* x, int count) {
  LaneRange<C> range{x[0], x[0], x[0] * C(0)};
  for (int i = 1; i < count; ++i) {
    range = {lesser(range.low, x[i]), greater(range.high, x[i]), add_not_finite(x[i], range.not_finite)};
  }
  return range;
}

// The ends that stand for a block, or NaN and NaN if it has no codes.
template <class C>
struct BlockEnds {
  C low;
  C high;
  bool has_codes;
};

// Both the sign of a zero and what a NaN hides come out the same in whatever order ranges were merged: where zeros of
// both signs are among the least, not_finite is +0.
template <class C>
AC2_HOST_DEVICE inline BlockEnds<C> ends_of(const LaneRange<C>& range, int32_t levels) {
  const C low = range.low + range.not_finite, high = range.high + range.not_finite;
  if (is_quantizable(low, high, levels)) return {low, high, true};
  constexpr C kNone = std::numeric_limits<C>::quiet_NaN();
  return {kNone, kNone, false};
}

template <int kBytes>
AC2_HOST_DEVICE inline void store_word(uint64_t word, uint8_t* to) {
  static_assert(kBytes == 1 || kBytes == 2 || kBytes == 4 || kBytes == 8);
  using Word = std::conditional_t<
      kBytes == 1, uint8_t,
      std::conditional_t<kBytes == 2, uint16_t, std::conditional_t<kBytes == 4, uint32_t, uint64_t>>>;
  const Word bytes = static_cast<Word>(word);
  // `to` is a multiple of kBytes.
  memcpy(__builtin_assume_aligned(to, kBytes), &bytes, sizeof bytes);
}

template <int kBytes>
AC2_HOST_DEVICE inline uint64_t load_word(const uint8_t* from) {
  using Word = std::conditional_t<
      kBytes == 1, uint8_t,
      std::conditional_t<kBytes == 2, uint16_t, std::conditional_t<kBytes == 4, uint32_t, uint64_t>>>;
  Word bytes;
  memcpy(&bytes, __builtin_assume_aligned(from, kBytes), sizeof bytes);
  return bytes;
}

// Stores the codes of the numbers that a lane has of one block; `codes` are the block's.
template <class T, int bits>
AC2_HOST_DEVICE inline void store_codes(const ComputedAs<T>* x, const BlockEnds<ComputedAs<T>>& ends,
                                        uint64_t random_key, int length, int lane, uint8_t* codes) {
  using C = ComputedAs<T>;
  constexpr int32_t levels = levels_of(bits);
  constexpr int kBytes = kPerVector<T> * bits / 8;
  const BlockScale<C> scale = block_scale(ends.low, ends.high, levels);
  for (int v = 0; v < kVectors<T>; ++v) {
    const int first = number_in_block<T>(lane, v * kPerVector<T>);
    uint64_t word = 0;
    for (int i = 0; i < kPerVector<T> && ends.has_codes; ++i) {
      const int32_t code =
          quantize(x[v * kPerVector<T> + i], scale, levels, random_24(random_key, static_cast<uint32_t>(first + i)));
      word |= static_cast<uint64_t>(code) << (bits * i);
    }
    uint8_t* to = codes + first * bits / 8;
    const int bytes_left = (length * bits + 7) / 8 - first * bits / 8;
    if (bytes_left >= kBytes) {
      store_word<kBytes>(word, to);
    } else {
      for (int i = 0; i < bytes_left; ++i) to[i] = static_cast<uint8_t>(word >> (8 * i));
    }
  }
}

// The numbers of a block without codes are left to someone else.
template <class T, int bits>
AC2_HOST_DEVICE inline void load_codes(const uint8_t* codes, ComputedAs<T> low, ComputedAs<T> high, int length,
                                       int lane, bool vectors, T* numbers) {
  using C = ComputedAs<T>;
  if (low != low) return;
  constexpr int32_t levels = levels_of(bits);
  constexpr int kBytes = kPerVector<T> * bits / 8;
  const BlockScale<C> scale = block_scale(low, high, levels);
  for (int v = 0; v < kVectors<T>; ++v) {
    const int first = number_in_block<T>(lane, v * kPerVector<T>);
    const uint8_t* from = codes + first * bits / 8;
    const int bytes_left = (length * bits + 7) / 8 - first * bits / 8;
    uint64_t word = 0;
    if (bytes_left >= kBytes) {
      word = load_word<kBytes>(from);
    } else {
      for (int i = 0; i < bytes_left; ++i) word |= static_cast<uint64_t>(from[i]) << (8 * i);
    }
    T out[kPerVector<T>];
    for (int i = 0; i < kPerVector<T>; ++i) {
      out[i] = static_cast<T>(dequantize(static_cast<int32_t>(word >> (bits * i)) & levels, scale, levels));
    }
    if (vectors && length == kQuantizeBlock) {
      store_16(out, numbers + first);
    } else {
      for (int i = 0; i < kPerVector<T> && first + i < length; ++i) numbers[first + i] = out[i];
    }
  }
}

}  // namespace ac2::policies::internal
