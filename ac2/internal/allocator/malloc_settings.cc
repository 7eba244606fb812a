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
    constexpr int kMapped = 128 * 1024;
    mallopt(M_MMAP_THRESHOLD, kMapped);
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
