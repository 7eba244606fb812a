// Counts, to the byte, the CPU memory that tensors hold, for tests and benchmarks to compare.
//
//   auto& memory = ac2::testing::CountingAllocator::install();   // first thing in main()
//   const int64_t before = memory.current_bytes();
//   memory.reset_peak();
//   at::Tensor loss = model(x);
//   std::cout << memory.current_bytes() - before << " held, " << memory.peak_bytes() - before << " peak";
//
// Threads: every function may be called from any thread at any time, install() included, except that nothing may
// allocate tensors while the first install() runs: c10::SetAllocator has no lock. The count is one of the process, so a
// difference means something only while other threads stand still.
#pragma once

#include <c10/core/Allocator.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ac2::testing {

// The bytes that were asked for are counted: no padding, no allocator overhead, no freed blocks kept by malloc. Memory
// that LibTorch's kernels take past c10 (oneDNN's scratchpads, MKL's buffers) is not seen.
class CountingAllocator final : public c10::Allocator {
 public:
  // Becomes LibTorch's CPU allocator on the first call and stays it until the process ends; later calls return the same
  // object. Tensors that are older keep their own deleter and are never counted.
  static CountingAllocator& install();

  int64_t current_bytes() const { return current_.load(std::memory_order_relaxed); }
  // The most that current_bytes() was since the last reset_peak().
  int64_t peak_bytes() const { return peak_.load(std::memory_order_relaxed); }
  // Non-empty allocations so far.
  int64_t allocations() const { return allocations_.load(std::memory_order_relaxed); }
  void reset_peak() { peak_.store(current_bytes(), std::memory_order_relaxed); }

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* dest, const void* src, std::size_t count) const override;

 private:
  CountingAllocator() = default;
  static void deallocate(void* data);

  std::atomic<int64_t> current_{0};
  std::atomic<int64_t> peak_{0};
  std::atomic<int64_t> allocations_{0};
};

}  // namespace ac2::testing
