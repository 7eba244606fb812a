// How much of a GPU a test lets LibTorch's allocator have, for which LibTorch has no interface without CUDA's headers.
#pragma once

namespace ac2::test {

// Gives back to CUDA all blocks that nothing uses. Nothing in builds without CUDA.
void empty_cache();

// Of the current device's memory, until this is gone. Nothing in builds without CUDA.
class MemoryFraction {
 public:
  explicit MemoryFraction(double fraction);
  ~MemoryFraction();
  MemoryFraction(const MemoryFraction&) = delete;
  MemoryFraction& operator=(const MemoryFraction&) = delete;
};

}  // namespace ac2::test
