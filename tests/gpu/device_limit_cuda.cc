#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include "tests/gpu/device_limit.h"

namespace ac2::test {

void empty_cache() {
  c10::cuda::CUDACachingAllocator::emptyCache();
}

MemoryFraction::MemoryFraction(double fraction) {
  c10::cuda::CUDACachingAllocator::setMemoryFraction(fraction, c10::cuda::current_device());
}

MemoryFraction::~MemoryFraction() {
  c10::cuda::CUDACachingAllocator::setMemoryFraction(1, c10::cuda::current_device());
}

}  // namespace ac2::test
