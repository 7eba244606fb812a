#include "ac2/internal/allocator/malloc_settings.h"

#include <stdlib.h>  // defines __GLIBC__

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <atomic>

namespace ac2::internal {

#ifdef __GLIBC__

void map_large_blocks() {
  static std::atomic<bool> is_done{false};  // nobody waits for it: malloc has a lock of its own for its settings
  if (!is_done.exchange(true)) {
    mallopt(M_MMAP_THRESHOLD, static_cast<int>(kMappedFrom));
  }
}

void return_free_memory() {
  malloc_trim(0);
}

#else

void map_large_blocks() {}
void return_free_memory() {}

#endif

}  // namespace ac2::internal
