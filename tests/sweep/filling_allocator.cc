#include "tests/sweep/filling_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <cstring>

namespace ac2::test::sweep {

void FillingAllocator::install() {
  // Leaked: tensors with static lifetime are freed after main().
  static auto* installed = [] {
    auto* allocator = new FillingAllocator;
    c10::SetCPUAllocator(allocator, /*priority=*/255);
    return allocator;
  }();
  static_cast<void>(installed);
}

c10::DataPtr FillingAllocator::allocate(size_t bytes) {
  const c10::Device cpu(c10::DeviceType::CPU);
  if (bytes == 0) return {nullptr, nullptr, &c10::free_cpu, cpu};
  void* const data = c10::alloc_cpu(bytes);
  // Zeros and other bytes, in no order that a program's own allocations could be in step with.
  const uint64_t mixed = blocks_.fetch_add(1, std::memory_order_relaxed) * 0x9e3779b97f4a7c15U;
  std::memset(data, (mixed >> 63) != 0 ? 0 : static_cast<int>(mixed >> 32 & 0xff), bytes);
  return {data, data, &c10::free_cpu, cpu};
}

c10::DeleterFnPtr FillingAllocator::raw_deleter() const {
  return &c10::free_cpu;
}

void FillingAllocator::copy_data(void* dest, const void* src, std::size_t count) const {
  default_copy_data(dest, src, count);
}

}  // namespace ac2::test::sweep
