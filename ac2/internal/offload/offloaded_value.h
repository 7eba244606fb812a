// A value's bytes in pinned memory, or on the way there or back. OffloadDevice::take_out() makes it.
//
// Lifetime: an OffloadedValue may be destroyed while copies are under way, but not while a tape's lock is held.
// Threads: any; the mutex of its OffloadDevice guards it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>

#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/offload/copy_speed.h"
#include "ac2/internal/offload/copy_streams.h"
#include "ac2/internal/offload/offload_device.h"
#include "ac2/internal/offload/pinned_pool.h"

namespace ac2::internal {

class OffloadedValue final : public torch::CustomClassHolder {
 public:
  // `out` happens when the copy into `block` is done, which waited for the current
  // stream.
  OffloadedValue(OffloadDevice& device, const at::Tensor& tensor, PinnedPool::Block block, CopyStreams::EventPtr out)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(device.mutex_);
  // Copies under way are not disturbed: the memory that they use is freed after them.
  ~OffloadedValue() override;
  // Called when the last strong reference is gone and weak ones are left.
  void release_resources() override;
  OffloadedValue(const OffloadedValue&) = delete;
  OffloadedValue& operator=(const OffloadedValue&) = delete;

  size_t nbytes() const { return nbytes_; }

  // The tensor that was taken out, for use on this thread's current stream: over its first storage if that is still
  // there, else over a copy on the device.
  at::Tensor bring_back();
  // Queues the copy for a later bring_back(). Returns false, and queues nothing, if more than `limit` bytes would then
  // be on the device ahead of their use, or if the device has no memory left.
  bool read_ahead(int64_t limit);
  // Undoes read_ahead() if the copy is not used yet.
  void stop_reading_ahead();
  // Whether the device has the bytes, or they are on their way back. Needs no lock: another thread may change it.
  bool is_near() const { return near_.load(std::memory_order_relaxed); }
  // Whether the copy to the host is known to be done.
  bool is_out();
  // The device memory is free from now on, in the order of the stream that the value came from.
  void leave();
  // See OffloadDevice.
  double bytes_per_cost(const ProgramClock& clock);
  // To be called before this thread's current stream writes to the storage that was taken out.
  void before_write();

 private:
  friend class OffloadDevice;
  struct Incoming {
    c10::Storage storage;
    c10::Stream stream;  // on which the memory was allocated
    CopyStreams::EventPtr done;
  };

  // By the device, which has locked the mutex. It knows that the value is one of its own; the analysis does not.
  void device_is_locked() const ABSL_ASSERT_EXCLUSIVE_LOCK(device_.mutex_) {}
  void start_copy_in() ABSL_EXCLUSIVE_LOCKS_REQUIRED(device_.mutex_);
  void drop_incoming() ABSL_EXCLUSIVE_LOCKS_REQUIRED(device_.mutex_);
  void leave_ahead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(device_.mutex_);
  // Frees the device memory. The copy out must be done.
  void leave_device() ABSL_EXCLUSIVE_LOCKS_REQUIRED(device_.mutex_);
  // The same before the copy is done: the stream that the value came from waits for it first.
  void leave_device_in_order() ABSL_EXCLUSIVE_LOCKS_REQUIRED(device_.mutex_);

  OffloadDevice& device_;
  const TensorMeta meta_;
  const size_t nbytes_;
  PinnedPool::Block block_ ABSL_GUARDED_BY(device_.mutex_);
  const CopyStreams::EventPtr out_;                        // happens when the copy out is done
  const c10::Stream stream_;                               // the current stream when the value was taken out
  c10::Storage original_ ABSL_GUARDED_BY(device_.mutex_);  // while in flight
  std::list<OffloadedValue*>::iterator in_flight_ ABSL_GUARDED_BY(device_.mutex_);
  std::optional<Incoming> incoming_ ABSL_GUARDED_BY(device_.mutex_);
  std::atomic<bool> near_{true};  // original_ or incoming_ is there
  std::optional<std::list<OffloadedValue*>::iterator> ahead_ ABSL_GUARDED_BY(device_.mutex_);
};

}  // namespace ac2::internal
