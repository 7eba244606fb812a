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
#include "tests/support/front_allocator.h"

namespace ac2::test {

// One thread at a time.
class AllocationLog final : public FrontAllocator<testing::CountingAllocator> {
 public:
  // Stands in front of the CountingAllocator from the first call to the end of the process.
  static AllocationLog& install() { return installed_allocator<AllocationLog>(); }

  // Bytes held after each non-empty allocation of fn(), on top of what was held before it.
  std::vector<int64_t> during(const std::function<void()>& fn);

  c10::DataPtr allocate(size_t bytes) override;

 private:
  friend AllocationLog& installed_allocator<AllocationLog>();
  AllocationLog() : FrontAllocator(testing::CountingAllocator::install()) {}

  std::vector<int64_t>* bytes_ = nullptr;
  int64_t before_ = 0;
};

}  // namespace ac2::test
