#include "ac2/internal/offload/offload_device.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include <memory>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/libtorch/stream_order.h"
#include "ac2/internal/offload/offloaded_value.h"

namespace ac2::internal {

namespace {

struct Devices {
  Mutex mutex;
  // Null for devices from which values cannot be offloaded.
  absl::flat_hash_map<c10::Device, std::unique_ptr<OffloadDevice>> by_device ABSL_GUARDED_BY(mutex);
};

Devices& devices() {
  static auto* all = new Devices;  // leaked: graphs with static lifetime are freed after main()
  return *all;
}

std::unique_ptr<OffloadDevice> make_device(c10::Device device) {
  if (!is_asynchronous(device)) {
    return nullptr;
  }
  try {
    c10::Allocator* pinned = at::globalContext().getPinnedMemoryAllocator(device.type());
    return pinned == nullptr ? nullptr : std::make_unique<OffloadDevice>(device, *pinned);
  } catch (const c10::Error&) {
    return nullptr;  // the device does not implement an interface of c10
  }
}

}  // namespace

OffloadDevice* OffloadDevice::of(c10::Device device) {
  const MutexLock lock(devices().mutex);
  auto [it, is_new] = devices().by_device.try_emplace(device);
  if (is_new) {
    it->second = make_device(device);
  }
  return it->second.get();
}

OffloadMemory OffloadDevice::memory() {
  OffloadMemory sum;
  const MutexLock lock(devices().mutex);
  for (const auto& [_, device] : devices().by_device) {
    if (device) {
      const MutexLock device_lock(device->mutex_);
      sum.bytes += device->pool_.bytes();
      sum.bytes_in_use += device->pool_.bytes_in_use();
    }
  }
  return sum;
}

void OffloadDevice::release_memory() {
  const MutexLock lock(devices().mutex);
  for (const auto& [_, device] : devices().by_device) {
    if (device) {
      const MutexLock device_lock(device->mutex_);
      device->pool_.release_unused();
      device->speed_.drop_events();
    }
  }
}

c10::intrusive_ptr<OffloadedValue> OffloadDevice::take_out(const at::Tensor& tensor, const OffloadOptions& options,
                                                           const ProgramClock* clock) {
  c10::intrusive_ptr<OffloadedValue> offloaded;  // its destructor takes the lock too
  const MutexLock lock(mutex_);
  const size_t nbytes = tensor.storage().nbytes();
  std::optional<PinnedPool::Block> block = pool_.take(nbytes, options.max_pinned_bytes);
  if (!block) {
    return {};
  }
  CopyStreams::EventPtr out, begun;
  try {
    if (clock != nullptr) {
      speed_.note_program(*clock, streams_.here());
    }
    out = streams_.copy_out(tensor.storage(), block->storage, nbytes, block->busy, clock != nullptr ? &begun : nullptr);
  } catch (...) {
    pool_.give_back(std::move(*block));
    throw;
  }
  if (begun) {
    speed_.note_copy(std::move(begun), out, nbytes);
  }
  offloaded = c10::make_intrusive<OffloadedValue>(*this, tensor, std::move(*block), std::move(out));
  make_streams_wait(options.in_flight_bytes);
  return offloaded;
}

double OffloadDevice::bytes_per_cost(const ProgramClock& clock) {
  const MutexLock lock(mutex_);
  if (speed_.needs_program(clock)) {
    speed_.note_program(clock, streams_.here());
  }
  return speed_.bytes_per_cost(clock.source);
}

double OffloadDevice::bytes_per_cost_of_all(const ProgramClock& clock) {
  const MutexLock lock(mutex_);
  speed_.look();
  return speed_.bytes_per_cost(clock.source);
}

void OffloadDevice::release_what_is_out() {
  const MutexLock lock(mutex_);
  while (!in_flight_.empty() && in_flight_.front()->out_->query()) {
    OffloadedValue& oldest = *in_flight_.front();
    oldest.device_is_locked();
    oldest.leave_device();
  }
}

void OffloadDevice::make_streams_wait(int64_t bytes) {
  while (in_flight_bytes_ > bytes) {
    OffloadedValue& oldest = *in_flight_.front();
    oldest.device_is_locked();
    oldest.leave_device_in_order();
  }
}

void OffloadDevice::stop_reading_ahead() {
  while (!ahead_.empty()) {
    OffloadedValue& first = *ahead_.front();
    first.device_is_locked();
    first.drop_incoming();
  }
}

}  // namespace ac2::internal
