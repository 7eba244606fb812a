// Autograd's threads for devices let go of what a backward took only after that has returned.
#pragma once

#include <torch/torch.h>

namespace ac2::test {

// Until the last backward on `device` has been let go of: the engine does that before it begins the next one, which
// here is of tensors without bytes.
inline void wait_for_engine(c10::Device device) {
  const at::Tensor x = at::empty({0}, at::device(device)).requires_grad_();
  torch::autograd::grad({x.clone()}, {x}, {at::empty_like(x)});
}

}  // namespace ac2::test
