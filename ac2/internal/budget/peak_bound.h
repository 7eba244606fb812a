// The bound of a budget for a peak: where it is kept, and what is said where it is exceeded or cannot be kept.
//
//   PeakBound bound(1 << 30);
//   bound.met_device(device);      // after an op of a region: limits that device's allocator, or warns
//   bound.tell_exceeded(c10::kCPU, bytes, held);
//
// The memory of the CPU's tensors is bounded by the allocator in front of it, and that of a device that PyTorch does
// not have itself likewise (allocator/accelerator_front.h). CUDA's allocator is told to take no more of the device than
// the bound (allocator/accelerator_limit.h).
//
// Threads: any.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "ac2/internal/allocator/accelerator_limit.h"
#include "ac2/internal/locks/mutex.h"

namespace ac2::internal {

class PeakBound {
 public:
  explicit PeakBound(int64_t bytes) : bytes_(bytes) {}
  PeakBound(const PeakBound&) = delete;
  PeakBound& operator=(const PeakBound&) = delete;

  int64_t bytes() const { return bytes_; }
  // An op of a region under the budget has computed there. No lock may be held.
  void met_device(c10::Device device);
  // Whether the allocator in front of an accelerator keeps it.
  bool is_kept_in_front() const { return is_kept_in_front_.load(std::memory_order_relaxed); }
  // Of the accelerators on which regions under the budget have computed: the most that is allocated on one of them now,
  // as far as LibTorch tells. 0 if there is none. No lock may be held: an allocator takes its own.
  int64_t accelerator_bytes() const;
  // Warns that `bytes` more are allocated than the bound, of which regions hold `held`.
  void tell_exceeded(c10::Device device, int64_t bytes, int64_t held) const;

 private:
  // False if it has been met before.
  bool is_new(c10::Device device);

  const int64_t bytes_;
  // The accelerators: a bit for each index. Relaxed: of several threads one sees that a device is new.
  std::atomic<uint64_t> met_{0};
  std::atomic<bool> is_kept_in_front_{
      false};  // relaxed: it stays true, and a shortage that comes before is learned from
  Mutex mutex_;
  std::vector<std::unique_ptr<AcceleratorLimit>> limits_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ac2::internal
