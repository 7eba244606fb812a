// ResNet-50 trained on CIFAR-10, with the recomputation of MindSpore's guide to it
// (https://www.mindspore.cn/docs/en/r1.7/design/recompute.html): a flag for each layer, `layer1.recompute()`, and one
// for single ops, `relu.recompute()`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/variants.h"

namespace example {

struct ResnetCifar10Options {
  bool small = false;  // a net of five narrow blocks
  std::string data;    // as Cifar10::load(); empty: a small set, made for this
  int64_t batch = 16;
  double learning_rate = 0.01;
  // The recomputed modules, as names of ac2::ModuleSelector: "layer1" is one region, "layer1.*" one for each block.
  // Empty: several choices, side by side.
  std::vector<std::string> recompute;
  // In these, the ops that are recomputed ("aten::relu"); empty: all. Never the output, as with Cell.recompute().
  std::vector<std::string> ops;
};

// The same training without recomputation (the first) and with it. Throws c10::Error for bad data, a name that is no
// layer's or block's, an op that does not exist, and a batch or learning rate out of range.
std::vector<Variant> resnet_cifar10(const ResnetCifar10Options& options);

}  // namespace example
