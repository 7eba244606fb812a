#include "examples/device_meter.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

#include "ac2/testing/counting_allocator.h"

namespace gpt {
namespace {

struct Requested {
  int64_t current = 0;
  int64_t peak = 0;
};

// at::accelerator has functions for these numbers from LibTorch 2.9 on. Templates look them up where they are
// instantiated, so that they need not exist.
template <class Index>
constexpr bool tells_requested() {
  using namespace at::accelerator;  // NOLINT(google-build-using-namespace)
  return requires(Index device) {
    getDeviceStats(device);
  };
}

template <class Index>
Requested requested_of(Index device) {
  using namespace at::accelerator;  // NOLINT(google-build-using-namespace)
  if constexpr (tells_requested<Index>()) {
    const auto requested = getDeviceStats(device).requested_bytes.at(0);  // 0: of all pools
    return {.current = requested.current, .peak = requested.peak};
  } else {
    return {};
  }
}

template <class Index>
void reset_peak_of(Index device) {
  using namespace at::accelerator;  // NOLINT(google-build-using-namespace)
  if constexpr (requires { resetPeakStats(device); }) resetPeakStats(device);
}

ac2::testing::CountingAllocator& cpu() {
  return ac2::testing::CountingAllocator::install();
}

}  // namespace

DeviceMeter::DeviceMeter(c10::Device device) : device_(device) {
  if (device.is_cpu()) {
    cpu();
    return;
  }
  const int devices = at::accelerator::deviceCount();
  TORCH_CHECK(at::accelerator::getAccelerator() == device.type() && devices > 0, "There is no ", device,
              " here: no such device, or a program built without it (bazel build --config=cuda).");
  TORCH_CHECK(device.index() < devices, "There is no ", device, " here: this machine has ", devices,
              ", numbered from 0.");
  // An allocator has no statistics before.
  at::globalContext().lazyInitDevice(device.type());
  device_ = c10::Device(device.type(), device.has_index() ? device.index() : at::accelerator::getDeviceIndex());
  TORCH_CHECK(can_count(device_), "This LibTorch, ", TORCH_VERSION, ", does not tell how many bytes are in use on ",
              device_, ". Use 2.9 or a later one, or --device=cpu.");
}

bool DeviceMeter::can_count(c10::Device device) {
  return device.is_cpu() || tells_requested<c10::DeviceIndex>();
}

void DeviceMeter::synchronize() const {
  if (!device_.is_cpu()) at::accelerator::synchronizeDevice(device_.index());
}

int64_t DeviceMeter::current_bytes() const {
  return device_.is_cpu() ? cpu().current_bytes() : requested_of(device_.index()).current;
}

int64_t DeviceMeter::peak_bytes() const {
  return device_.is_cpu() ? cpu().peak_bytes() : requested_of(device_.index()).peak;
}

void DeviceMeter::reset_peak() const {
  if (device_.is_cpu()) {
    cpu().reset_peak();
  } else {
    reset_peak_of(device_.index());
  }
}

}  // namespace gpt
