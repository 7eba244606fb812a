// The means of one device for offloading: pinned memory, streams to copy on, and lists of the values on their way.
//
//   if (OffloadDevice* device = OffloadDevice::of(tensor.device())) {
//     c10::intrusive_ptr<OffloadedValue> offloaded = device->take_out(tensor, options);
//     …
//     at::Tensor again = offloaded->bring_back();
//   }
//
// A copy to the host waits for the stream on which the value is wanted, and runs on a stream of its own. The storage is
// held until the copy's event is known to have happened. When too many bytes are in flight, the stream that the oldest
// value came from waits for that value's copy, and its memory is free in that stream's order. So the host, which runs
// ahead of the device, frees memory that the device has not finished with, and never waits. A copy back is allocated on
// the stream that will use it, and waits for that stream and for the copy to the host.
//
// Rejected: record_stream() instead of waiting (the allocator then asks an event for each block, which may be recorded
// behind later copies); holding storages until their events have happened, without a bound (a host that is far ahead
// has enqueued all of forward by then, and nothing was freed); a single stream for both directions (devices copy both
// ways at once); a pool for each region.
//
// Lifetime: there is one for each device of the process, and it is never destroyed. Regions come and go with every
// step, and pinned memory is slow to get. Threads: any. Its mutex is held while copies are queued and memory is
// allocated. The mutex must not be taken while a tape's lock is held, nor a tape's lock while the mutex is held. An
// OffloadDevice never blocks the host.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <cstdint>
#include <list>

#include "ac2/internal/locks/mutex.h"
#include "ac2/internal/offload/copy_speed.h"
#include "ac2/internal/offload/copy_streams.h"
#include "ac2/internal/offload/pinned_pool.h"
#include "ac2/offload_options.h"

namespace ac2::internal {

class OffloadedValue;

class OffloadDevice {
 public:
  // Null if values cannot be offloaded from it, because it has no streams, no events, or no pinned memory.
  static OffloadDevice* of(c10::Device device);
  // The pinned memory of all devices together.
  static OffloadMemory memory();
  static void release_memory();

  OffloadDevice(c10::Device device, c10::Allocator& pinned) : device_(device), pool_(pinned), streams_(device) {}
  OffloadDevice(const OffloadDevice&) = delete;
  OffloadDevice& operator=(const OffloadDevice&) = delete;

  // Queues the copy of the whole storage of `tensor` to the host. Null if there is no pinned memory left. With `clock`,
  // which says how far the program is, the copy and the program's ops are timed.
  c10::intrusive_ptr<OffloadedValue> take_out(const at::Tensor& tensor, const OffloadOptions& options,
                                              const ProgramClock* clock = nullptr);
  // See CopySpeed; of copies with a clock. 0 until it is known.
  double bytes_per_cost(const ProgramClock& clock);
  // The same by all that the device has done, for which the caller has waited.
  double bytes_per_cost_of_all(const ProgramClock& clock);

  // Frees the device memory of values whose copies are done by now. Cheap if none is on its way: a count that is read
  // too late only puts that off, and all else is looked at with the lock.
  void poll() {
    if (in_flight_count_.load(std::memory_order_relaxed) > 0) {
      release_what_is_out();
    }
  }

 private:
  friend class OffloadedValue;

  void release_what_is_out() ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes the stream that the oldest value came from wait for its copy, and frees the value in that stream's order,
  // until at most `bytes` are on their way.
  void make_streams_wait(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void stop_reading_ahead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const c10::Device device_;
  Mutex mutex_;  // of all OffloadedValues of the device too
  PinnedPool pool_ ABSL_GUARDED_BY(mutex_);
  CopyStreams streams_ ABSL_GUARDED_BY(mutex_);
  CopySpeed speed_ ABSL_GUARDED_BY(mutex_);
  // Values whose device memory is still there, the oldest first.
  std::list<OffloadedValue*> in_flight_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int64_t> in_flight_count_{0};
  int64_t in_flight_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // Values that were copied back ahead of their use and are not used yet.
  std::list<OffloadedValue*> ahead_ ABSL_GUARDED_BY(mutex_);
  int64_t ahead_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ac2::internal
