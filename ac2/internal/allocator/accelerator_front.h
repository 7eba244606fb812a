// An allocator that stands in front of the one of a device which PyTorch does not have itself (PrivateUse1): where
// memory runs out, values are dropped and the allocation is tried again, and a limit on it is kept.
//
//   accelerator_front::put_in_front();          // as often as one likes
//   accelerator_front::start({.limit = …, …});  // and before each allocation from then on, the keeper is asked
//
// Only in front of a c10::DeviceAllocator, which tells its statistics (LibTorch 2.9 and newer). A block comes from the
// allocator behind, and is freed by its deleter: nothing is wrapped or counted here. All functions of the allocator
// behind are passed on. The bytes that are allocated are those of the statistics (allocated_bytes). One look at them
// copies all statistics, and an allocation takes one, from start() on.
//
// Not guaranteed: a device's kernels may ask their own allocator instead of the one that is registered with c10, and do
// not pass here then. CUDA's do. has_passed() tells.
//
// Threads: any. Other threads may allocate while put_in_front() changes the allocator (retrying_allocator.h says why).
#pragma once

#include <c10/core/Device.h>

#include "ac2/internal/allocator/kept_limit.h"

namespace ac2::internal::accelerator_front {

// Nothing if no such device, or no such allocator, is registered.
void put_in_front();
void start(const KeptLimit::Keeper& keeper);
// Whether memory of that device has been allocated here.
bool has_passed(c10::Device device);

}  // namespace ac2::internal::accelerator_front
