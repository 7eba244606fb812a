#include "ac2/internal/observe/measured_copies.h"

#include <ATen/core/Tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "ac2/internal/libtorch/for_each_tensor.h"
#include "ac2/internal/libtorch/storage_copy.h"
#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/libtorch/unrecorded.h"
#include "ac2/internal/offload/offload_device.h"

namespace ac2::internal {

namespace {

// So many results are copied: the first ones, for the copies of these have ops beside them.
constexpr size_t kCopies = 8;

}  // namespace

MeasuredCopies::MeasuredCopies(const OffloadOptions& options, CostSource costs)
    : options_(options), clock_{.owner = reinterpret_cast<uint64_t>(this), .source = costs} {}

void MeasuredCopies::measure(const OpContext& op, double cost) {
  clock_.cost = cost;
  for_each_tensor(op.outputs(), [&](const at::Tensor& result) {
    if (copies_.size() >= kCopies || !result.defined() || result.is_cpu() || result.is_meta() ||
        !has_plain_storage(result)) {
      return;
    }
    const size_t nbytes = result.storage().nbytes();
    OffloadDevice* device = OffloadDevice::of(result.device());
    if (device == nullptr || nbytes == 0 || static_cast<int64_t>(nbytes) < options_.min_bytes) {
      return;
    }
    // Of a tensor of its own: a result whose storage somebody else has is recorded as one that may change.
    const Unrecorded guard;
    const c10::Storage own = copy_storage(result.storage(), nbytes);
    if (auto copy = device->take_out(as_bytes(own, nbytes), options_, &clock_)) {
      copies_.push_back({result.device(), std::move(copy)});
    }
  });
}

double MeasuredCopies::bytes_per_cost() {
  double speed = 0;
  for (const Copy& copy : copies_) {
    c10::impl::VirtualGuardImpl(copy.device.type()).synchronizeDevice(copy.device.index());
    OffloadDevice::of(copy.device)->poll();
    speed = std::max(speed, OffloadDevice::of(copy.device)->bytes_per_cost_of_all(clock_));
  }
  return speed;
}

}  // namespace ac2::internal
