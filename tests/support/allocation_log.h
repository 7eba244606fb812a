// The bytes that tensors hold, at every allocation: two programs that agree here free each tensor between the same two
// allocations.
//
//   AllocationLog& log = AllocationLog::install();
//   const std::vector<int64_t> bytes = log.during([&] { y = model(x); });
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "ac2/testing/counting_allocator.h"

namespace ac2::test {

// One thread at a time.
class AllocationLog final : public c10::Allocator {
 public:
  // Stands in front of the CountingAllocator from the first call to the end of the process.
  static AllocationLog& install();

  // Bytes held after each non-empty allocation of fn(), on top of what was held before it.
  std::vector<int64_t> during(const std::function<void()>& fn);

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return behind_.raw_deleter(); }
  void copy_data(void* dest, const void* src, std::size_t count) const override { behind_.copy_data(dest, src, count); }

 private:
  AllocationLog() = default;

  testing::CountingAllocator& behind_ = testing::CountingAllocator::install();
  std::vector<int64_t>* bytes_ = nullptr;
  int64_t before_ = 0;
};

}  // namespace ac2::test
