// The part of a device's memory that LibTorch's allocator may have, for devices whose allocator takes no more than a
// fraction (CUDA).
//
//   note_memory_fraction(device.index(), 0.5);    // by Python, whenever a region opens
//   const double fraction = memory_fraction(device.index());
//
// A program may set the fraction (torch.cuda.set_per_process_memory_fraction()). LibTorch tells and sets it by CUDA's
// own headers alone. So a build for CUDA has a source that asks and sets. Python's package, which is built without
// CUDA, notes the fraction whenever a region opens, and sets it by PyTorch's own function. In another build the
// fraction is that which was noted, and 1 at first.
//
// Threads: any. The device's allocator may be locked by the caller of memory_fraction().
#pragma once

#include <c10/core/Device.h>

namespace ac2::internal {

struct MemoryFractionSource {
  c10::DeviceType type = c10::DeviceType::CUDA;
  // Null: the fraction is noted.
  double (*get)(c10::DeviceIndex device) = nullptr;
  // From an op of a region, with no lock of ac2 held.
  void (*set)(c10::DeviceIndex device, double fraction) = nullptr;
  // From a destructor, with any locks held. The fraction may be set some time later.
  void (*set_later)(c10::DeviceIndex device, double fraction) = nullptr;
};
// `source` lives to the end of the process; null: none. Before anything computes on the device.
void set_memory_fraction_source(const MemoryFractionSource* source);
const MemoryFractionSource* memory_fraction_source();

// From 0 to 1.
double memory_fraction(c10::DeviceIndex device);
void note_memory_fraction(c10::DeviceIndex device, double fraction);

}  // namespace ac2::internal
