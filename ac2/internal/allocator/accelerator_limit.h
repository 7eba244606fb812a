// A limit on the memory that LibTorch's allocator takes of an accelerator, for as long as somebody wants it.
//
//   const std::unique_ptr<AcceleratorLimit> limit = AcceleratorLimit::on(device, int64_t{20} << 30);
//   if (limit == nullptr) …    // nothing can limit that device's allocator
//
// The limit is set as the fraction of the device's memory that the allocator may have (memory_fraction.h). Where
// several limits are wanted the smallest is set, and never more than the program itself allowed before the first. When
// the last is gone, the fraction is what it was before the first, unless the program has set another one meanwhile.
//
// The allocator counts all memory that it has reserved, used or not, so the limit is one on the device's memory itself.
//
// Threads: any. The destructor may run with any locks held.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

namespace ac2::internal {

class AcceleratorLimit {
 public:
  // Null if no fraction can be set on that device, or if the device does not tell how much memory it has. No lock of
  // ac2's may be held.
  static std::unique_ptr<AcceleratorLimit> on(c10::Device device, int64_t bytes);
  ~AcceleratorLimit();
  AcceleratorLimit(const AcceleratorLimit&) = delete;
  AcceleratorLimit& operator=(const AcceleratorLimit&) = delete;

 private:
  AcceleratorLimit(c10::DeviceIndex device, int64_t bytes) : device_(device), bytes_(bytes) {}

  const c10::DeviceIndex device_;
  const int64_t bytes_;
};

}  // namespace ac2::internal
