// The device of tensors that are made without saying where, as torch.set_default_device in Python: for modules, whose
// parameters cannot be moved to a device that PyTorch does not have itself.
//
//   {
//     const DefaultDevice device(fake.device());
//     linear = torch::nn::Linear(3, 4);           // its parameters are there
//   }
//
// Threads: one of them lives at a time, and it is for all threads.
#pragma once

#include <c10/core/Device.h>
#include <torch/library.h>

namespace ac2::test {

class DefaultDevice {
 public:
  explicit DefaultDevice(c10::Device device);
  ~DefaultDevice();
  DefaultDevice(const DefaultDevice&) = delete;
  DefaultDevice& operator=(const DefaultDevice&) = delete;

 private:
  torch::Library library_;
};

}  // namespace ac2::test
