// A hash of a few of the bytes that lie somewhere, by which one sees later whether somebody has written there.
//
// Of up to 64 bytes all are looked at, of more eight words that are spread evenly. So a kernel that writes a whole
// tensor is seen, and one that writes a few elements of a large one most often not: to look at all would read each
// result of forward once more.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ac2::internal {

// Never 0. `bytes` may be null if there are none.
inline uint32_t byte_sample(const void* bytes, size_t nbytes) {
  constexpr size_t kWords = 8;
  // Odd, so that no two words lead from one hash to the same other.
  constexpr uint64_t kFactor = 0x9e3779b97f4a7c15;
  const char* at = static_cast<const char*>(bytes);
  uint64_t hash = nbytes;
  const auto add = [&hash](const char* from, size_t count) {
    uint64_t word = 0;
    std::memcpy(&word, from, count);
    hash = (hash ^ word) * kFactor;
  };
  if (nbytes >= sizeof(uint64_t)) {
    const size_t last = nbytes - sizeof(uint64_t);
    const size_t step = (last + kWords - 2) / (kWords - 1);  // rounded up, so that no byte of a few is left out
    for (size_t i = 0; i < kWords; ++i) {
      add(at + std::min(i * step, last), sizeof(uint64_t));
    }
  } else if (nbytes > 0) {
    add(at, nbytes);
  }
  return static_cast<uint32_t>(hash >> 32) | 1;
}

}  // namespace ac2::internal
