#include "tests/support/failing_allocator.h"

#include <c10/util/Exception.h>

namespace ac2::test {

c10::DataPtr FailingAllocator::allocate(size_t bytes) {
  ++allocations_;
  if (left_ == 0) {
    left_ = again_ >= 0 ? again_ : kFailed;
    TORCH_CHECK_WITH(OutOfMemoryError, false, kOutOfMemoryAsTold, ": ", bytes, " bytes");
  }
  if (left_ > 0) {
    --left_;
  }
  return behind_.allocate(bytes);
}

}  // namespace ac2::test
