// Networks for images, as in torchvision, with writes in place: for benchmarks of memory. ../peers/image_networks.py
// has the same in Python, but for "resnet32".
//
//   auto network = peers::make_image_network("resnet50", peers::Size::kFull);
//
// "densenet121" has a part for each layer of a dense block, the others for each block. Inputs are 16 images of 96 x 96
// (8 for densenet121; for "resnet32", the ResNet for CIFAR, 64 of 32 x 32). Parameters are those of LibTorch's
// generator.
//
// Threads: as torch::nn::Module, one at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "benchmarks/networks/networks.h"

namespace peers {

const std::vector<std::string>& image_network_names();

// Throws c10::Error that lists the names if `name` is not one of them.
std::shared_ptr<Network> make_image_network(const std::string& name, Size size);

}  // namespace peers
