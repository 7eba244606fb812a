// AllocationRecorder and CachingAllocator for a process that is not ours: Python loads this by ctypes. Linked to the
// LibTorch that the process has loaded.
#include <cstdint>
#include <exception>
#include <iostream>

#include "benchmarks/caching/allocation_recorder.h"

using ac2::benchmarks::AllocationEvents;
using ac2::benchmarks::AllocationRecorder;

namespace {

AllocationEvents& recorded() {
  static AllocationEvents events;
  return events;
}

}  // namespace

extern "C" {

void ac2_install_recorder() {
  AllocationRecorder::install();
}

void ac2_start_recording() {
  AllocationRecorder::install().start();
}

// Returns the number of events.
int64_t ac2_stop_recording() {
  recorded() = AllocationRecorder::install().stop();
  return static_cast<int64_t>(recorded().size());
}

// Gives the last recording to a CachingAllocator, and returns the most bytes requested, in use, and reserved. Returns 0
// if there is no room, and writes why to the standard error.
int ac2_simulate(int expandable_segments, int64_t device_bytes, int64_t* requested, int64_t* allocated,
                 int64_t* reserved) {
  try {
    ac2::benchmarks::CachingAllocator::Options options;
    options.expandable_segments = expandable_segments != 0;
    if (device_bytes > 0) options.device_bytes = device_bytes;
    const ac2::benchmarks::Reserved at_most = ac2::benchmarks::reserved_for(recorded(), options);
    *requested = at_most.requested_bytes;
    *allocated = at_most.allocated_bytes;
    *reserved = at_most.reserved_bytes;
    return 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 0;
  }
}

}  // extern "C"
