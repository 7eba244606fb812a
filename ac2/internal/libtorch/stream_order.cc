#include "ac2/internal/libtorch/stream_order.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace ac2::internal {

namespace {

using DeviceInterface = c10::impl::VirtualGuardImpl;

void make_wait(const c10::Stream& stream, const c10::Stream& other) {
  c10::Event event(stream.device_type());
  event.record(other);
  event.block(stream);
}

}  // namespace

bool has_streams(c10::DeviceType type) {
  return c10::impl::hasDeviceGuardImpl(type);
}

c10::StreamId current_stream(const c10::Storage& storage) {
  const c10::Device device = storage.device();
  return is_asynchronous(device) ? DeviceInterface(device.type()).getStream(device).id() : kNoStream;
}

void order_after(c10::Device device, c10::StreamId used_on) {
  if (used_on == kNoStream || !is_asynchronous(device)) {
    return;
  }
  const c10::Stream current = DeviceInterface(device.type()).getStream(device);
  if (current.id() != used_on) {
    make_wait(current, c10::Stream(c10::Stream::UNSAFE, current.device(), used_on));
  }
}

void keep_until_read(const c10::Storage& storage) {
  const c10::Device device = storage.device();
  if (is_asynchronous(device)) {
    const DeviceInterface devices(device.type());
    devices.recordDataPtrOnStream(storage.data_ptr(), devices.getStream(device));
  }
}

c10::StreamId order_use(const c10::Storage& storage, c10::StreamId used_on) {
  const c10::StreamId current = current_stream(storage);
  if (used_on == kNoStream || current == kNoStream) {
    return used_on;
  }
  if (current != used_on) {
    order_after(storage.device(), used_on);
    keep_until_read(storage);
  }
  return current;
}

void follow_current_device(c10::Device device) {
  if (!is_asynchronous(device)) {
    return;
  }
  const DeviceInterface devices(device.type());
  const c10::Device current = devices.getDevice();
  if (current != device) {
    make_wait(devices.getStream(device), devices.getStream(current));
  }
}

c10::Device with_index(c10::Device device) {
  return device.has_index() || !is_asynchronous(device) ? device : DeviceInterface(device.type()).getDevice();
}

}  // namespace ac2::internal
