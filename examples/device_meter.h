// Bytes and time on one device: the CPU's by ac2::testing::CountingAllocator, those of an accelerator
// as its allocator counts what was requested from it.
//
//   DeviceMeter meter(c10::Device(at::kCUDA));
//   meter.reset_peak();
//   ...
//   meter.synchronize();   // before each look at a clock
//
// Threads: as LibTorch's allocators. One accelerator at a time: the current one of its kind.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace gpt {

class DeviceMeter {
 public:
  // Throws c10::Error if the program or the machine has no such device, or if its bytes cannot be counted.
  explicit DeviceMeter(c10::Device device);

  // False for accelerators before LibTorch 2.9.
  static bool can_count(c10::Device device);

  // Until all that was queued on the device is done.
  void synchronize() const;
  int64_t current_bytes() const;
  int64_t peak_bytes() const;
  void reset_peak() const;

 private:
  c10::Device device_;
};

}  // namespace gpt
