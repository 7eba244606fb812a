// How much more LibTorch's allocator can have of an accelerator before it fails, and whether that is enough for an
// allocation of which nobody tells the size.
//
//   if (make_room_on(device)) …   // from the allocator: something was dropped
//
// A program may allow the allocator a fraction of the device (memory_fraction.h).
//
// Threads: any. The device's allocator may be locked by the caller.
#pragma once

#include <c10/core/Device.h>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace ac2::internal {

struct AcceleratorRoom {
  int64_t total = 0;      // the device's memory
  int64_t limit = 0;      // the most that the allocator may have in all
  int64_t reserved = 0;   // the bytes that it has
  int64_t untouched = 0;  // the bytes that it has not, may have, and others have left free
  int64_t idle = 0;       // those that it has and would give back
  int64_t workspace = 0;  // a kernel's own memory, which does not grow with the device

  int64_t left() const { return untouched + idle; }
  // Kernels may take as much beside their results.
  int64_t least() const { return std::max(limit / 128, workspace); }
};

// None if LibTorch does not say (before 2.9).
std::optional<AcceleratorRoom> room_of_accelerator(c10::DeviceIndex device);

// The allocator gives back the segments that nothing uses. Waits for the device.
//
// After a shortage the segments are cut as it suited a step that held more. Pieces of large ones are in use, by an
// optimizer's state for ever, and what is dropped next is nowhere a whole segment. Without what was cached the next
// step takes segments as it needs them. Segments that grow have no such pieces. To map their memory anew takes up to
// 9 % of a step (docs/gpu.md), so the allocator keeps that memory.
void give_back_idle_memory();

// The allocator is about to take a segment of the device, or to fail. Drops values until there is enough room for it.
// Returns whether anything was dropped. How much is enough depends on what this thread does:
//
// - An op that is tried again if it fails needs nothing.
// - A node of autograd needs as much as the largest gradient that it takes or makes, and a quarter more.
// - Anything else, such as an optimizer or an op outside of regions, needs what the largest segment had that was taken
//   so while regions held something, and a quarter more, but not more than a quarter of the limit. In the first two
//   steps it needs an eighth of the limit at least.
//
// The room is never less than AcceleratorRoom::least(). The allocator cannot always give back the bytes that were
// dropped, for example where it has cut segments into pieces. Then more is dropped.
bool make_room_on(c10::Device device);

// For tests: an allocator that is not LibTorch's. Null: LibTorch's.
struct AcceleratorAllocator {
  std::optional<AcceleratorRoom> (*room_of)(c10::DeviceIndex device);
  void (*give_back_idle)();
};
void set_accelerator_allocator(const AcceleratorAllocator* allocator);

}  // namespace ac2::internal
