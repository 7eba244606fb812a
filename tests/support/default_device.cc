#include "tests/support/default_device.h"

#include <ATen/ops/empty_ops.h>
#include <c10/core/TensorOptions.h>

#include <optional>

namespace ac2::test {

namespace {

std::optional<c10::Device> default_device;

at::Tensor empty_there(c10::SymIntArrayRef size, std::optional<c10::ScalarType> dtype,
                       std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                       std::optional<bool> pin_memory, std::optional<c10::MemoryFormat> memory_format) {
  if (!device) {
    device = default_device;
  }
  const c10::DispatchKeySet keys(c10::computeDispatchKey(dtype, layout, device));
  return at::_ops::empty_memory_format::redispatch(keys, size, dtype, layout, device, pin_memory, memory_format);
}

}  // namespace

DefaultDevice::DefaultDevice(c10::Device device)
    : library_(torch::Library::IMPL, "aten", c10::DispatchKey::BackendSelect, __FILE__, __LINE__) {
  default_device = device;
  library_.impl("empty.memory_format", &empty_there);
}

DefaultDevice::~DefaultDevice() {
  default_device.reset();
}

}  // namespace ac2::test
