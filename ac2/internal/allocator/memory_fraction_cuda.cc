// Sets the source of memory fractions when it is loaded. Only in a build for CUDA.
#include <c10/cuda/CUDACachingAllocator.h>

#include "ac2/internal/allocator/accelerator_room.h"

namespace ac2::internal {
namespace {

const bool is_set = [] {
  set_memory_fraction_source(
      [](c10::DeviceIndex device) { return c10::cuda::CUDACachingAllocator::getMemoryFraction(device); });
  return true;
}();

}  // namespace
}  // namespace ac2::internal
