// A fixture for tests of MemoryBudget::peak().
#pragma once

#include <cstdint>
#include <functional>

#include "ac2/memory_budget.h"
#include "ac2/testing/counting_allocator.h"
#include "tests/support/regions.h"

namespace ac2::test {

// The bytes before a test, on top of which it bounds what is allocated, are all counted: the first budget is made
// before anything is allocated.
class CountedPeaksTest : public CleanTest {
 protected:
  CountedPeaksTest() : counter_(testing::CountingAllocator::install()) {
    static const MemoryBudget first = MemoryBudget::peak(int64_t{1} << 60);
    CleanTest::SetUp();
  }

  // Of fn(), on top of what was held before.
  int64_t peak_of(const std::function<void()>& fn) {
    const int64_t before = counter_.current_bytes();
    counter_.reset_peak();
    fn();
    return counter_.peak_bytes() - before;
  }

  testing::CountingAllocator& counter_;
};

}  // namespace ac2::test
