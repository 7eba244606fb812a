// A CPU allocator with an end: as a machine with so much memory and no more.
//
//   LimitedAllocator& memory = LimitedAllocator::install();
//   const LimitedAllocator::Limit limit(memory, 1 << 20);   // from here on, a MiB on top of what there is
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <limits>

#include "ac2/testing/counting_allocator.h"
#include "tests/support/front_allocator.h"

namespace ac2::test {

// One thread at a time.
class LimitedAllocator final : public FrontAllocator<testing::CountingAllocator> {
 public:
  // Stands in front of the CountingAllocator from the first call to the end of the process.
  static LimitedAllocator& install() { return installed_allocator<LimitedAllocator>(); }

  class Limit {
   public:
    Limit(LimitedAllocator& allocator, int64_t bytes);
    ~Limit() { allocator_.limit_ = std::numeric_limits<int64_t>::max(); }
    Limit(const Limit&) = delete;
    Limit& operator=(const Limit&) = delete;

    // Allocations that failed so far.
    int64_t refused() const { return allocator_.refused_; }

   private:
    LimitedAllocator& allocator_;
  };

  // After `count` more allocations the limit is what is held then.
  class LastAllocation {
   public:
    LastAllocation(LimitedAllocator& allocator, int64_t count) : allocator_(allocator) {
      allocator_.left_ = count;
      allocator_.refused_ = 0;
    }
    ~LastAllocation() {
      allocator_.left_ = 0;
      allocator_.limit_ = std::numeric_limits<int64_t>::max();
    }
    LastAllocation(const LastAllocation&) = delete;
    LastAllocation& operator=(const LastAllocation&) = delete;

    int64_t refused() const { return allocator_.refused_; }

   private:
    LimitedAllocator& allocator_;
  };

  // Throws c10::OutOfMemoryError where it would be more than the limit.
  c10::DataPtr allocate(size_t bytes) override;

 private:
  friend LimitedAllocator& installed_allocator<LimitedAllocator>();
  LimitedAllocator() : FrontAllocator(testing::CountingAllocator::install()) {}

  int64_t limit_ = std::numeric_limits<int64_t>::max();
  int64_t refused_ = 0;
  int64_t left_ = 0;  // until the limit is set; 0: it is not going to be
};

}  // namespace ac2::test
