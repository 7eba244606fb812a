// The networks whose peaks are bounded in tests, those of benchmarks/networks and three that it does not have, and the
// check of the bound.
#pragma once

#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace ac2::test {

// The bound leaves so much of what a plain step peaks at beside its gradients.
struct NetworkAndShare {
  const char* name;
  int64_t percent;
};

// ResNet's last gradients are computed with two thirds of it, where nothing is left to drop.
inline constexpr std::array<NetworkAndShare, 6> kPeakNetworks = {
    {{"gpt", 60}, {"resnet18", 75}, {"lstm", 60}, {"resnet50", 60}, {"unet", 60}, {"moe", 60}}};

// Of the memory of a device.
struct PeakMeter {
  std::function<int64_t()> allocated;                               // the bytes that a budget for a peak counts
  std::function<int64_t(const std::function<void()>& fn)> peak_of;  // of fn(), on top of what was held before
  int64_t rounding = 0;
};

// A step of the network in one region under MemoryBudget::peak has the gradients of a plain step, and peaks at the
// bound or within 2 % below it.
void expect_peak_near_bound(const NetworkAndShare& network, c10::Device device, const PeakMeter& meter);

// A network and a step's input.
struct PeakNetwork {
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor()> forward;
};

// "resnet50" (with an eighth of its channels), "unet", "moe", or a name of benchmarks/networks. The same weights with
// each call.
PeakNetwork peak_network(const std::string& name, c10::Device device);

}  // namespace ac2::test
