// The networks whose peaks are bounded in tests: those of benchmarks/networks, and three that it does not have.
#pragma once

#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>

namespace ac2::test {

// A network and a step's input.
struct PeakNetwork {
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor()> forward;
};

// "resnet50" (with an eighth of its channels), "unet", "moe", or a name of benchmarks/networks. The same weights with
// each call.
PeakNetwork peak_network(const std::string& name, c10::Device device);

}  // namespace ac2::test
