// Where the values of one device go: pinned memory, streams to copy on, and what is on its way. One for each device of
// the process, as its allocator is: regions come and go with every step, and pinned memory is slow to get.
//
// Nothing here blocks the host. Threads: any. Its mutex is held while copies are queued and memory is allocated; take
// no tape's lock under it, nor it under a tape's.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>

#include "ac2/internal/offload/copy_streams.h"
#include "ac2/internal/offload/pinned_pool.h"
#include "ac2/offload_options.h"

namespace ac2::internal {

class OffloadedValue;

class OffloadDevice {
 public:
  // Null if values cannot leave it: it has no streams, no events, or no pinned memory.
  static OffloadDevice* of(c10::Device device);
  // Over all devices.
  static OffloadMemory memory();
  static void release_memory();

  OffloadDevice(c10::Device device, c10::Allocator& pinned) : device_(device), pool_(pinned), streams_(device) {}
  OffloadDevice(const OffloadDevice&) = delete;
  OffloadDevice& operator=(const OffloadDevice&) = delete;

  // The bytes of the whole storage of `tensor`, on their way out; null if there is no pinned memory left.
  c10::intrusive_ptr<OffloadedValue> take_out(const at::Tensor& tensor, const OffloadOptions& options);

  // Frees the device memory of what is known to be out by now. Cheap where nothing is on its way.
  void poll() {
    if (in_flight_count_.load(std::memory_order_relaxed) > 0) {
      release_what_is_out();
    }
  }

 private:
  friend class OffloadedValue;

  void release_what_is_out();
  // The oldest first, until at most `bytes` are on their way: the streams they came from wait.
  void make_streams_wait(int64_t bytes);
  void stop_reading_ahead();

  const c10::Device device_;
  std::mutex mutex_;  // guards what follows, and all OffloadedValue of this device
  PinnedPool pool_;
  CopyStreams streams_;
  // Whose device memory is still there, the oldest first.
  std::list<OffloadedValue*> in_flight_;
  std::atomic<int64_t> in_flight_count_{0};
  int64_t in_flight_bytes_ = 0;
  // Copied back and not used yet.
  std::list<OffloadedValue*> ahead_;
  int64_t ahead_bytes_ = 0;
};

}  // namespace ac2::internal
