#include "tests/support/limited_allocator.h"

#include <c10/util/Exception.h>

namespace ac2::test {

LimitedAllocator::Limit::Limit(LimitedAllocator& allocator, int64_t bytes) : allocator_(allocator) {
  allocator_.limit_ = allocator_.behind_.current_bytes() + bytes;
  allocator_.refused_ = 0;
}

c10::DataPtr LimitedAllocator::allocate(size_t bytes) {
  if (left_ > 0 && --left_ == 0) {
    limit_ = behind_.current_bytes() + static_cast<int64_t>(bytes);
  }
  if (behind_.current_bytes() + static_cast<int64_t>(bytes) > limit_) {
    ++refused_;
    TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory. Tried to allocate ", bytes, " bytes on top of ",
                     behind_.current_bytes());
  }
  return behind_.allocate(bytes);
}

}  // namespace ac2::test
