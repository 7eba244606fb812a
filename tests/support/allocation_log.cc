#include "tests/support/allocation_log.h"

#include <c10/util/ScopeExit.h>

namespace ac2::test {

std::vector<int64_t> AllocationLog::during(const std::function<void()>& fn) {
  std::vector<int64_t> bytes;
  bytes_ = &bytes;
  before_ = behind_.current_bytes();
  const auto stop = c10::make_scope_exit([this] { bytes_ = nullptr; });
  fn();
  return bytes;
}

c10::DataPtr AllocationLog::allocate(size_t bytes) {
  c10::DataPtr data = behind_.allocate(bytes);
  if (bytes_ != nullptr && bytes > 0) bytes_->push_back(behind_.current_bytes() - before_);
  return data;
}

}  // namespace ac2::test
