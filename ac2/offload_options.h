// The options of offloading (what leaves a device, and how far ahead it is copied back), and the pinned memory that
// offloading uses. ac2/offload.h says what offloading is.
#pragma once

#include <cstdint>
#include <limits>

namespace ac2 {

// All bytes are those of whole storages. The bounds are for a device, so what other regions have on the way counts too;
// the numbers that hold are those of the region that is running at the moment.
struct OffloadOptions {
  // Results of fewer bytes stay on the device.
  int64_t min_bytes = 1 << 20;
  // Offloads what the region takes from outside for backward too: its inputs and all other tensors of at least
  // `min_bytes`. Leaves that require a gradient stay, because the program holds them anyway. This holds for tensors
  // that ops take from here on.
  bool inputs = false;
  // The most bytes of the device for values that were copied back ahead of their use. With 0 each value is copied when
  // backward needs it, and backward waits for the copy.
  int64_t read_ahead_bytes = 256 << 20;
  // The most bytes that stay on the device because their copy to the host is not done. When there are more, the
  // program's stream waits for the oldest copy, so that memory is free in the order of the stream; the host does not
  // wait. With 0 the stream waits for each copy at once.
  int64_t in_flight_bytes = 256 << 20;
  // The most pinned memory that all regions of the process may have together for values of one device, at the moment
  // when this region takes some.
  int64_t max_pinned_bytes = std::numeric_limits<int64_t>::max();

  friend bool operator==(const OffloadOptions& a, const OffloadOptions& b) = default;
};

// Pinned memory of the host.
struct OffloadMemory {
  int64_t bytes = 0;         // in the pool
  int64_t bytes_in_use = 0;  // those of them with values in them
};

}  // namespace ac2
