#include "ac2/offload.h"

#include "ac2/internal/offload/offload_device.h"

namespace ac2 {

OffloadMemory offload_memory() {
  return internal::OffloadDevice::memory();
}

void release_offload_memory() {
  internal::OffloadDevice::release_memory();
}

}  // namespace ac2
