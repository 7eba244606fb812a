// A CPU allocator that can be told to run out of memory.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>

#include "tests/support/front_allocator.h"

namespace ac2::test {

// The text of FailingAllocator's error.
inline constexpr char kOutOfMemoryAsTold[] = "out of memory, as told";

// One thread at a time.
class FailingAllocator final : public FrontAllocator<c10::Allocator> {
 public:
  // Stands in front of LibTorch's CPU allocator from the first call to the end of the process.
  static FailingAllocator& install() { return installed_allocator<FailingAllocator>(); }

  // The allocation after `count` more fails, as LibTorch's own does; those after it succeed again.
  void fail_after(int64_t count) { left_ = count; }
  // So does each one after `count` others, again and again. An allocation that is tried again is another one.
  void fail_each_after(int64_t count) {
    left_ = count;
    again_ = count;
  }
  void never_fail() {
    left_ = -1;
    again_ = -1;
  }
  // Whether that has happened since fail_after().
  bool has_failed() const { return left_ == kFailed; }
  // The allocations of this process so far.
  int64_t allocations() const { return allocations_; }

  c10::DataPtr allocate(size_t bytes) override;

 private:
  static constexpr int64_t kFailed = -2;

  friend FailingAllocator& installed_allocator<FailingAllocator>();
  FailingAllocator() : FrontAllocator(*c10::GetCPUAllocator()) {}

  int64_t left_ = -1;
  int64_t again_ = -1;
  int64_t allocations_ = 0;
};

}  // namespace ac2::test
