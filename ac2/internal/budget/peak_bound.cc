#include "ac2/internal/budget/peak_bound.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "ac2/internal/allocator/accelerator_front.h"
#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/internal/libtorch/warn_in_op.h"

namespace ac2::internal {

bool PeakBound::is_new(c10::Device device) {
  const uint64_t bit = uint64_t{1} << (static_cast<uint8_t>(device.index()) % 64U);
  return (met_.load(std::memory_order_relaxed) & bit) == 0 &&
         (met_.fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
}

void PeakBound::met_device(c10::Device device) {
  if (device.is_cpu() || device.is_meta() || !is_new(device)) {
    return;
  }
  if (accelerator_front::has_passed(device)) {
    is_kept_in_front_.store(true, std::memory_order_relaxed);
    return;
  }
  if (std::unique_ptr<AcceleratorLimit> limit = AcceleratorLimit::on(device, bytes_)) {
    const MutexLock lock(mutex_);
    limits_.push_back(std::move(limit));
    return;
  }
  warn_in_op(c10::str(
      "MemoryBudget::peak(", bytes_, ") does not bound the memory of ", device,
      ", on which a region under it computes. Neither does that device's allocator tell how much it has allocated, nor "
      "can this build of ac2 limit it. A shortage there is met as under whatever_fits(). To bound the device, limit "
      "its "
      "allocator (for CUDA c10::cuda::CUDACachingAllocator::setMemoryFraction, or build ac2 with --config=cuda), or "
      "give "
      "the regions a number of bytes that they may hold. This is said once for a budget."));
}

int64_t PeakBound::accelerator_bytes() const {
  int64_t bytes = 0;
  for (uint64_t met = met_.load(std::memory_order_relaxed); met != 0; met &= met - 1) {
    try {
      bytes = std::max(
          bytes, allocated_bytes_of_accelerator(static_cast<c10::DeviceIndex>(std::countr_zero(met))).value_or(0));
    } catch (const c10::Error&) {
      continue;  // The device does not say.
    }
  }
  return bytes;
}

void PeakBound::tell_exceeded(c10::Device device, int64_t bytes, int64_t held) const {
  warn_in_op(c10::str(
      "The peak of ", bytes_, " bytes", device.is_cpu() ? "" : " on " + device.str(), " is exceeded, by ", bytes,
      " bytes: nothing that regions under this budget hold can be dropped. They hold ", held,
      " bytes, and the rest of the ", bytes_ + bytes,
      " bytes is what they cannot drop: parameters, gradients, the optimizer's state, what the program holds "
      "itself, and the memory of kernels. Give the budget more, or more of the program a region under it. This "
      "is said once for a budget; MemoryBudget::times_over() and most_bytes_over() count."));
}

}  // namespace ac2::internal
