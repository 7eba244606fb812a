// A value's bytes in pinned memory, or on the way there or back.
//
// Threads: any; its OffloadDevice's mutex guards it. Must not be destroyed under a tape's lock.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>

#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/offload/copy_streams.h"
#include "ac2/internal/offload/pinned_pool.h"

namespace ac2::internal {

class OffloadDevice;

class OffloadedValue final : public torch::CustomClassHolder {
 public:
  // With the device's mutex. `out` is the copy into `block`, queued on the current stream's behalf.
  OffloadedValue(OffloadDevice& device, const at::Tensor& tensor, PinnedPool::Block block, CopyStreams::EventPtr out);
  // Copies that are under way finish in peace.
  ~OffloadedValue() override;
  // When the last reference goes and weak ones are left.
  void release_resources() override;
  OffloadedValue(const OffloadedValue&) = delete;
  OffloadedValue& operator=(const OffloadedValue&) = delete;

  size_t nbytes() const { return nbytes_; }

  // The tensor that was taken out, for this thread's current stream: over its first storage if that is still there,
  // else over a copy.
  at::Tensor bring_back();
  // Queues the copy that bring_back() would, unless more than `limit` bytes would then be on the device for later.
  // False if so, or if the device has no memory left.
  bool read_ahead(int64_t limit);
  // Undoes that, if nobody has used it.
  void stop_reading_ahead();
  // This thread's current stream is about to write to the storage that was taken out.
  void before_write();

 private:
  friend class OffloadDevice;
  struct Incoming {
    c10::Storage storage;
    c10::Stream stream;  // whose memory it is
    CopyStreams::EventPtr done;
  };

  // All with the device's mutex.
  void start_copy_in();
  void drop_incoming();
  void leave_ahead();
  // Its device memory is no longer needed: the copy out is done, or the stream waits for it.
  void leave_device();
  void leave_device_in_order();

  OffloadDevice& device_;
  const TensorMeta meta_;
  const size_t nbytes_;
  PinnedPool::Block block_;
  const CopyStreams::EventPtr out_;  // happens when the copy out is done
  const c10::Stream stream_;         // that wanted it taken out
  c10::Storage original_;            // while in flight
  std::list<OffloadedValue*>::iterator in_flight_;
  std::optional<Incoming> incoming_;
  std::optional<std::list<OffloadedValue*>::iterator> ahead_;
};

}  // namespace ac2::internal
