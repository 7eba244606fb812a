#include "ac2/internal/offload/offloaded_value.h"

#include <c10/util/Exception.h>

#include <exception>
#include <utility>

#include "ac2/internal/libtorch/out_of_memory.h"
#include "ac2/internal/libtorch/storage_copy.h"
#include "ac2/internal/offload/offload_device.h"

namespace ac2::internal {

OffloadedValue::OffloadedValue(OffloadDevice& device, const at::Tensor& tensor, PinnedPool::Block block,
                               CopyStreams::EventPtr out)
    : device_(device),
      meta_(*tensor.unsafeGetTensorImpl()),
      nbytes_(tensor.storage().nbytes()),
      block_(std::move(block)),
      out_(std::move(out)),
      stream_(device.streams_.current()),
      original_(tensor.storage()) {
  block_.busy = out_;
  in_flight_ = device.in_flight_.insert(device.in_flight_.end(), this);
  device.in_flight_count_.fetch_add(1, std::memory_order_relaxed);
  device.in_flight_bytes_ += static_cast<int64_t>(nbytes_);
}

OffloadedValue::~OffloadedValue() {
  OffloadedValue::release_resources();
}

void OffloadedValue::release_resources() {
  // Without the lock: nobody has the value any more, and the device leaves this field alone.
  if (!ABSL_TS_UNCHECKED_READ(block_).storage) {
    return;
  }
  try {
    const MutexLock lock(device_.mutex_);
    drop_incoming();
    if (original_) {
      out_->query() ? leave_device() : leave_device_in_order();
    }
    device_.pool_.give_back(std::exchange(block_, {}));
  } catch (const std::exception& error) {
    TORCH_WARN("ac2 could not give back offloaded memory: ", error.what());
  }
}

void OffloadedValue::leave_device() {
  device_.in_flight_.erase(in_flight_);
  device_.in_flight_count_.fetch_sub(1, std::memory_order_relaxed);
  device_.in_flight_bytes_ -= static_cast<int64_t>(nbytes_);
  original_ = c10::Storage();
  near_.store(incoming_.has_value(), std::memory_order_relaxed);
}

void OffloadedValue::leave_device_in_order() {
  device_.streams_.wait(*out_, original_, stream_);
  leave_device();
}

void OffloadedValue::start_copy_in() {
  c10::Storage storage = allocate_storage(nbytes_, device_.device_);
  CopyStreams::EventPtr done = device_.streams_.copy_in(block_.storage, storage, nbytes_, out_);
  block_.busy = done;
  incoming_.emplace(Incoming{std::move(storage), device_.streams_.current(), std::move(done)});
  near_.store(true, std::memory_order_relaxed);
}

void OffloadedValue::leave_ahead() {
  if (ahead_) {
    device_.ahead_.erase(*ahead_);
    device_.ahead_bytes_ -= static_cast<int64_t>(nbytes_);
    ahead_.reset();
  }
}

void OffloadedValue::drop_incoming() {
  leave_ahead();
  if (incoming_) {
    incoming_->done->block(incoming_->stream);
    incoming_.reset();
    near_.store(static_cast<bool>(original_), std::memory_order_relaxed);
  }
}

at::Tensor OffloadedValue::bring_back() {
  const MutexLock lock(device_.mutex_);
  if (original_) {
    return meta_.over(original_);
  }
  if (!incoming_) {
    try {
      start_copy_in();
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error) || device_.ahead_.empty()) {
        throw;
      }
      device_.stop_reading_ahead();
      start_copy_in();
    }
  }
  leave_ahead();
  device_.streams_.wait(*incoming_->done, incoming_->storage, device_.streams_.current());
  near_.store(false, std::memory_order_relaxed);
  return meta_.over(std::exchange(incoming_, std::nullopt)->storage);
}

bool OffloadedValue::read_ahead(int64_t limit) {
  const MutexLock lock(device_.mutex_);
  if (original_ || incoming_) {
    return true;
  }
  if (device_.ahead_bytes_ + static_cast<int64_t>(nbytes_) > limit) {
    return false;
  }
  try {
    start_copy_in();
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) {
      throw;
    }
    return false;
  }
  ahead_ = device_.ahead_.insert(device_.ahead_.end(), this);
  device_.ahead_bytes_ += static_cast<int64_t>(nbytes_);
  return true;
}

void OffloadedValue::stop_reading_ahead() {
  const MutexLock lock(device_.mutex_);
  if (ahead_) {
    drop_incoming();
  }
}

bool OffloadedValue::is_out() {
  const MutexLock lock(device_.mutex_);
  return !original_ || out_->query();
}

void OffloadedValue::leave() {
  const MutexLock lock(device_.mutex_);
  if (original_) {
    out_->query() ? leave_device() : leave_device_in_order();
  }
}

double OffloadedValue::bytes_per_cost(const ProgramClock& clock) {
  return device_.bytes_per_cost(clock);
}

void OffloadedValue::before_write() {
  const MutexLock lock(device_.mutex_);
  out_->block(device_.streams_.current());
  if (original_) {
    leave_device_in_order();
  }
}

}  // namespace ac2::internal
