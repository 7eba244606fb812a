#include "tests/support/failing_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

namespace ac2::test {

FailingAllocator& FailingAllocator::install() {
  // Leaked: tensors with static lifetime are freed after main().
  static FailingAllocator* const installed = [] {
    auto* allocator = new FailingAllocator;
    allocator->behind_ = c10::GetCPUAllocator();
    c10::SetCPUAllocator(allocator, /*priority=*/255);
    return allocator;
  }();
  return *installed;
}

c10::DataPtr FailingAllocator::allocate(size_t bytes) {
  if (left_ == 0) {
    left_ = kFailed;
    TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory, as told: ", bytes, " bytes");
  }
  if (left_ > 0) {
    --left_;
  }
  return behind_->allocate(bytes);
}

}  // namespace ac2::test
