// Counts the bytes that meta tensors would take if they had data.
//
//   MetaMemory& memory = MetaMemory::install();
//   const int64_t before = memory.current_bytes();
//   …
//   memory.peak_bytes() - before
//
// As ac2::testing::CountingAllocator counts those of the CPU. What kernels take while they run is not in it, because on
// meta tensors they do not run.
//
// Threads: nothing may allocate meta tensors while the first install() runs. All else: any.
#pragma once

#include <c10/core/Allocator.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpt {

class MetaMemory final : public c10::Allocator {
 public:
  // Becomes LibTorch's allocator of meta tensors on the first call, until the process ends.
  static MetaMemory& install();

  int64_t current_bytes() const { return current_; }
  // The most since the last reset_peak().
  int64_t peak_bytes() const { return peak_; }
  void reset_peak() { peak_ = current_.load(); }

  c10::DataPtr allocate(size_t bytes) override;
  void copy_data(void* dest, const void* src, std::size_t count) const override;

 private:
  MetaMemory() = default;
  static void deallocate(void* block);

  std::atomic<int64_t> current_{0};
  std::atomic<int64_t> peak_{0};
};

}  // namespace gpt
