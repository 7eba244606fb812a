// Autograd's threads for devices let go of what a backward took only after that has returned.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include "ac2/scope.h"

namespace ac2::test {

// Until the last backward on devices of this one's kind has been let go of: the engine does that before it begins the
// next one, which here is of tensors without bytes. On the CPU backward runs in the thread that asks for it.
inline void wait_for_engine(c10::Device device) {
  if (device.is_cpu() || device.is_meta()) return;
  const DisableCheckpointing disable;
  const c10::DeviceIndex count = c10::impl::VirtualGuardImpl(device.type()).deviceCount();
  for (c10::DeviceIndex index = 0; index < count; ++index) {
    const at::Tensor x = at::empty({0}, at::device(c10::Device(device.type(), index))).requires_grad_();
    torch::autograd::grad({x.clone()}, {x}, {at::empty_like(x)});
  }
}

}  // namespace ac2::test
