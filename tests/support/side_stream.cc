#include "tests/support/side_stream.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace ac2::test {

void order(const c10::Stream& first, const c10::Stream& second) {
  c10::Event event(first.device_type());
  event.record(first);
  event.block(second);
}

void use_on_current_stream(const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return;
  const c10::impl::VirtualGuardImpl devices(tensor.device().type());
  devices.recordDataPtrOnStream(tensor.storage().data_ptr(), devices.getStream(tensor.device()));
}

at::Tensor on_side_stream(const c10::Stream& side, c10::ArrayRef<at::Tensor> reads,
                          const std::function<at::Tensor()>& fn) {
  const c10::Stream outer = c10::impl::VirtualGuardImpl(side.device_type()).getStream(side.device());
  order(outer, side);
  at::Tensor y;
  {
    const c10::StreamGuard guard(side);
    for (const at::Tensor& tensor : reads) use_on_current_stream(tensor);
    y = fn();
  }
  order(side, outer);
  use_on_current_stream(y);
  return y;
}

}  // namespace ac2::test
