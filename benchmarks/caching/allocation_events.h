// The allocations of a program, in order, and what a CachingAllocator makes of them.
//
//   const Reserved reserved = reserved_for(events, {});
//   reserved.requested_bytes, reserved.reserved_bytes
//
// Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "benchmarks/caching/caching_allocator.h"

namespace ac2::benchmarks {

struct AllocationEvent {
  uint32_t block = 0;  // a number that no other block of the program has
  int64_t bytes = 0;   // 0: the block is freed
};
using AllocationEvents = std::vector<AllocationEvent>;

// At most, all of it.
struct Reserved {
  int64_t requested_bytes = 0;
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;
  int64_t retries = 0;
};

// Throws std::runtime_error if the device has no room, and std::logic_error if a block is freed that is not there.
Reserved reserved_for(const AllocationEvents& events, const CachingAllocator::Options& options);

}  // namespace ac2::benchmarks
