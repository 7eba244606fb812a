#include "policies/internal/quantize/device_kernels.h"

#include <array>
#include <atomic>

namespace ac2::policies::internal {

namespace {

std::atomic<const DeviceKernels*>& entry(at::DeviceType type) {
  static std::array<std::atomic<const DeviceKernels*>, at::COMPILE_TIME_MAX_DEVICE_TYPES> table{};
  return table.at(static_cast<size_t>(type));
}

}  // namespace

const DeviceKernels* device_kernels(at::DeviceType type) {
  return entry(type).load(std::memory_order_acquire);
}

RegisterDeviceKernels::RegisterDeviceKernels(at::DeviceType type, const DeviceKernels* kernels) {
  // Pairs with the acquire of device_kernels(). A thread that follows the pointer sees the kernels.
  entry(type).store(kernels, std::memory_order_release);
}

}  // namespace ac2::policies::internal
