#include "benchmarks/device_meter.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/testing/counting_allocator.h"

namespace ac2::benchmarks {

namespace {

internal::RequestedBytes requested(c10::Device device) {
  return internal::requested_of_accelerator(device.index()).value();
}

testing::CountingAllocator& cpu() {
  return testing::CountingAllocator::install();
}

}  // namespace

DeviceMeter::DeviceMeter(c10::Device device) : device_(device) {
  if (device.is_cpu()) {
    cpu();
    return;
  }
  TORCH_CHECK(at::accelerator::getAccelerator() == device.type() && at::accelerator::deviceCount() > 0, "There is no ",
              device, " here: no such device, or a program built without it (bazel build --config=cuda).");
  device_ = c10::Device(device.type(), device.has_index() ? device.index() : at::accelerator::getDeviceIndex());
  TORCH_CHECK(internal::requested_of_accelerator(device_.index()), "This LibTorch, ", TORCH_VERSION,
              ", does not tell how many bytes are in use on ", device_, ". Use 2.9 or a later one, or --device=cpu.");
}

void DeviceMeter::synchronize() const {
  if (!device_.is_cpu()) at::accelerator::synchronizeDevice(device_.index());
}

int64_t DeviceMeter::current_bytes() const {
  return device_.is_cpu() ? cpu().current_bytes() : requested(device_).current;
}

int64_t DeviceMeter::peak_bytes() const {
  return device_.is_cpu() ? cpu().peak_bytes() : requested(device_).peak;
}

void DeviceMeter::reset_peak() const {
  if (device_.is_cpu()) {
    cpu().reset_peak();
  } else {
    internal::reset_peak_of_accelerator(device_.index());
  }
}

}  // namespace ac2::benchmarks
