// Measures the memory that tensors take on a device: now, and at the most since the last look.
//
//   if (const std::unique_ptr<MemoryMeter> meter = MemoryMeter::of(device)) {
//     step();
//     const MemoryMeter::Reading reading = meter->read();
//   }
//
// The CPU's allocations are counted by the allocator in front of LibTorch's, while the meter lives: bytes that were
// asked for, of blocks that were allocated since somebody began to count (counted_memory.h). has_counted() tells which
// these are. An accelerator's numbers are the statistics of its c10::DeviceAllocator (LibTorch 2.9 and newer). The
// statistics' peak begins anew with each look.
//
// There is one meter at a time in a process. Allocations of all threads are measured.
//
// Threads: one at a time. As put_in_front() of retrying_allocator.h: nothing may allocate tensors of the CPU on another
// thread while of() is called for the first time.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

namespace ac2::internal {

class MemoryMeter {
 public:
  struct Reading {
    int64_t now = 0;        // allocated
    int64_t highest = 0;    // the most that was allocated since the last look
    int64_t allocated = 0;  // the bytes of all allocations since the last look; kUnknown if the device does not tell
  };
  static constexpr int64_t kUnknown = int64_t{1} << 60;

  // Null if the device has no such statistics, and while there is another meter. A device without an index is the
  // current one.
  static std::unique_ptr<MemoryMeter> of(c10::Device device);
  virtual ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  c10::Device device() const { return device_; }
  virtual Reading read() = 0;
  // Whether a block of the device is in the readings.
  virtual bool has_counted(const void* data) const = 0;

 protected:
  explicit MemoryMeter(c10::Device device) : device_(device) {}

 private:
  const c10::Device device_;
};

}  // namespace ac2::internal
