// CountingAllocator for a process that is not ours: Python loads this by ctypes, so that bytes are counted by the same
// code on both sides. Linked to the LibTorch that the process has loaded.
#include <cstdint>

#include "ac2/testing/counting_allocator.h"

using ac2::testing::CountingAllocator;

extern "C" {

void ac2_count_from_here() {
  CountingAllocator::install();
}

int64_t ac2_current_bytes() {
  return CountingAllocator::install().current_bytes();
}

int64_t ac2_peak_bytes() {
  return CountingAllocator::install().peak_bytes();
}

void ac2_reset_peak() {
  CountingAllocator::install().reset_peak();
}

}  // extern "C"
