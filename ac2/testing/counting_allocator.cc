#include "ac2/testing/counting_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/alignment.h>
#include <c10/core/impl/alloc_cpu.h>

#include <cstring>

namespace ac2::testing {
namespace {

// The size of a block stands in front of it, so that freeing needs neither a table nor a lock. The size cannot be the
// DataPtr's context: raw_allocate() demands that context and data are the same pointer.
//
// A whole alignment unit, so that data is aligned as with the allocator that is replaced: kernels choose their code
// path by alignment, and a sum taken in another order has other bits.
constexpr size_t kHeader = c10::gAlignment;
static_assert(kHeader >= sizeof(size_t));

// Never destroyed: tensors with static lifetime are freed after main().
CountingAllocator* instance = nullptr;

}  // namespace

CountingAllocator& CountingAllocator::install() {
  static CountingAllocator& installed = []() -> CountingAllocator& {
    instance = new CountingAllocator;
    c10::SetCPUAllocator(instance, /*priority=*/255);
    return *instance;
  }();
  return installed;
}

c10::DataPtr CountingAllocator::allocate(size_t bytes) {
  const c10::Device cpu(c10::DeviceType::CPU);
  // As LibTorch's own: an empty block is a null pointer.
  if (bytes == 0) return {nullptr, nullptr, &CountingAllocator::deallocate, cpu};
  char* const block = static_cast<char*>(c10::alloc_cpu(kHeader + bytes));
  std::memcpy(block, &bytes, sizeof bytes);
  void* const data = block + kHeader;

  // Relaxed, as all that looks at these numbers. A thread that compares them has waited for the threads that allocate.
  const int64_t size = static_cast<int64_t>(bytes);
  const int64_t now = current_.fetch_add(size, std::memory_order_relaxed) + size;
  int64_t peak = peak_.load(std::memory_order_relaxed);
  while (peak < now && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
  allocations_.fetch_add(1, std::memory_order_relaxed);
  return {data, data, &CountingAllocator::deallocate, cpu};
}

void CountingAllocator::deallocate(void* data) {
  if (data == nullptr) return;
  char* const block = static_cast<char*>(data) - kHeader;
  size_t bytes = 0;
  std::memcpy(&bytes, block, sizeof bytes);
  instance->current_.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  c10::free_cpu(block);
}

c10::DeleterFnPtr CountingAllocator::raw_deleter() const {
  return &CountingAllocator::deallocate;
}

void CountingAllocator::copy_data(void* dest, const void* src, std::size_t count) const {
  default_copy_data(dest, src, count);
}

}  // namespace ac2::testing
