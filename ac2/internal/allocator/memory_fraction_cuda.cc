// Sets the source of memory fractions when it is loaded. Only in a build for CUDA.
#include <c10/cuda/CUDACachingAllocator.h>

#include "ac2/internal/allocator/memory_fraction.h"

namespace ac2::internal {
namespace {

void set_fraction(c10::DeviceIndex device, double fraction) {
  c10::cuda::CUDACachingAllocator::setMemoryFraction(fraction, device);
}

constexpr MemoryFractionSource kSource = {
    .get = [](c10::DeviceIndex device) { return c10::cuda::CUDACachingAllocator::getMemoryFraction(device); },
    .set = &set_fraction,
    .set_later = &set_fraction};

const bool is_set = [] {
  set_memory_fraction_source(&kSource);
  return true;
}();

}  // namespace
}  // namespace ac2::internal
