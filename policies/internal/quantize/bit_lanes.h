// Masks of one bit an element as a warp makes and reads them. The functions are those that each of its 32 lanes runs on
// a stretch of elements.
//
// A lane has one vector of 16 bytes, n elements, beside those of its neighbours, and so n bits; 32 / n lanes have a
// word of 32 bits together, which the first of them stores. Elements are numbered in the order of memory, the first
// in the lowest bit, as in bit_mask.cc.
//
// Needs nothing of LibTorch; compiles as C++, where tests run it lane after lane, and as CUDA.
#pragma once

#include <cstdint>

#include "policies/internal/quantize/quantize_lanes.h"

namespace ac2::policies::internal {

// Lanes that have a word together.
template <class T>
constexpr int kLanesPerWord = 32 / kPerVector<T>;

// Elements of a warp.
template <class T>
constexpr int kPerWarp = kPerVector<T>* kLanes;

template <class T>
AC2_HOST_DEVICE constexpr int64_t warps_of(int64_t numel) {
  return (numel + kPerWarp<T> - 1) / kPerWarp<T>;
}

template <class T>
AC2_HOST_DEVICE inline int64_t first_element_of(int64_t warp, int lane) {
  return warp * kPerWarp<T> + lane * kPerVector<T>;
}

// True for every byte but zero.
struct IsTrue {
  template <class T>
  AC2_HOST_DEVICE bool operator()(T x) const {
    return x != 0;
  }
};

// NaN is taken for positive, as by the gradient of ReLU.
struct IsPositive {
  template <class T>
  AC2_HOST_DEVICE bool operator()(T x) const {
    return !(static_cast<ComputedAs<T>>(x) <= 0);
  }
};

// A lane's bits, at their place in the word.
template <class T, class Flag>
AC2_HOST_DEVICE inline uint32_t bits_of_lane(const T* elements, int64_t numel, int64_t warp, int lane, bool vectors,
                                             Flag flag) {
  const int64_t first = first_element_of<T>(warp, lane);
  uint32_t bits = 0;
  if (vectors && first + kPerVector<T> <= numel) {
    T loaded[kPerVector<T>];
    load_16(elements + first, loaded);
    for (int i = 0; i < kPerVector<T>; ++i) bits |= static_cast<uint32_t>(flag(loaded[i])) << i;
  } else {
    for (int i = 0; i < kPerVector<T> && first + i < numel; ++i) {
      bits |= static_cast<uint32_t>(flag(elements[first + i])) << i;
    }
  }
  return bits << (lane % kLanesPerWord<T> * kPerVector<T>);
}

// By one lane of those that have the word; ⌈numel/8⌉ bytes are there.
template <class T>
AC2_HOST_DEVICE inline void store_bits(uint32_t word, int64_t numel, int64_t warp, int lane, uint8_t* bits) {
  if (lane % kLanesPerWord<T> != 0) return;
  const int64_t byte = first_element_of<T>(warp, lane) / 8;
  const int64_t bytes = (numel + 7) / 8;
  if (byte + 4 <= bytes) {
    store_word<4>(word, bits + byte);
  } else {
    for (int i = 0; byte + i < bytes; ++i) bits[byte + i] = static_cast<uint8_t>(word >> (8 * i));
  }
}

template <class T>
AC2_HOST_DEVICE inline void load_bits(const uint8_t* bits, int64_t numel, int64_t warp, int lane, bool vectors, T zero,
                                      T one, T* elements) {
  const int64_t first = first_element_of<T>(warp, lane);
  if (first >= numel) return;
  // 2, 4 or 8 bits of a byte, or 16 of two.
  const int64_t byte = first / 8;
  uint32_t own = bits[byte];
  if constexpr (sizeof(T) == 1) {
    if (byte + 1 < (numel + 7) / 8) own |= static_cast<uint32_t>(bits[byte + 1]) << 8;
  }
  own >>= first % 8;
  T out[kPerVector<T>];
  for (int i = 0; i < kPerVector<T>; ++i) out[i] = (own >> i & 1) != 0 ? one : zero;
  if (vectors && first + kPerVector<T> <= numel) {
    store_16(out, elements + first);
  } else {
    for (int i = 0; i < kPerVector<T> && first + i < numel; ++i) elements[first + i] = out[i];
  }
}

}  // namespace ac2::policies::internal
