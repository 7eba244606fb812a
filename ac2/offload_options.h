// Numbers of offloading: what is to leave a device and how far ahead it is copied back, and what pinned memory there
// is. ac2/offload.h says what offloading is.
#pragma once

#include <cstdint>
#include <limits>

namespace ac2 {

// All bytes are those of whole storages. What other regions have on the way counts too: a device has one bound, which
// is that of the region just then running.
struct OffloadOptions {
  // Results of fewer bytes stay where they are.
  int64_t min_bytes = 1 << 20;
  // What the region takes from outside and must keep is offloaded too: its inputs, and all else of at least `min_bytes`
  // but leaves that require a gradient, which are the program's own. Only what is met from here on.
  bool inputs = false;
  // At most so many bytes of the device hold values that were copied back and not used yet. 0: each is copied when it
  // is needed, and backward waits for it.
  int64_t read_ahead_bytes = 256 << 20;
  // At most so many bytes stay on the device because their copy out is not done. Beyond that the program's stream waits
  // for the oldest, so that memory is free in the order of the stream; the host does not wait. 0: for each at once.
  int64_t in_flight_bytes = 256 << 20;
  // Pinned memory for values of one device that all regions of the process may have together when this one takes some.
  int64_t max_pinned_bytes = std::numeric_limits<int64_t>::max();
};

// Pinned memory of the host.
struct OffloadMemory {
  int64_t bytes = 0;         // in the pool, in use or not
  int64_t bytes_in_use = 0;  // with values in it
};

}  // namespace ac2
