#include "benchmarks/caching/allocation_events.h"

#include <stdexcept>
#include <unordered_map>

namespace ac2::benchmarks {

Reserved reserved_for(const AllocationEvents& events, const CachingAllocator::Options& options) {
  CachingAllocator allocator(options);
  std::unordered_map<uint32_t, CachingAllocator::Address> addresses;
  for (const AllocationEvent& event : events) {
    if (event.bytes == 0) {
      const auto found = addresses.find(event.block);
      if (found == addresses.end()) {
        throw std::logic_error("block " + std::to_string(event.block) + " is freed and was not allocated");
      }
      allocator.free(found->second);
      addresses.erase(found);
      continue;
    }
    const auto address = allocator.allocate(event.bytes);
    if (!address) {
      throw std::runtime_error("the device has no room for " + std::to_string(event.bytes) + " bytes; " +
                               std::to_string(allocator.allocated().current) + " are in use");
    }
    addresses[event.block] = *address;
  }
  return {allocator.requested().peak, allocator.allocated().peak, allocator.reserved().peak, allocator.retries()};
}

}  // namespace ac2::benchmarks
