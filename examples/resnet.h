// ResNet with bottleneck blocks (He et al., "Deep Residual Learning for Image Recognition", 2015), for 32 x 32
// pictures: its first convolution is 3 x 3 with stride 1, and no pooling follows, as is usual for CIFAR-10.
//
//   example::ResNet model{example::ResNetOptions{}};                          // ResNet-50
//   ac2::apply_checkpointing(model, {.modules = {"layer1", "layer3.*"}});  // one region; and one for each block
//
// layer1 to layer4 are Checkpointed<Sequential>, switched off: plain until they are asked for by name.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <array>
#include <cstdint>

#include "ac2/ac2.h"

namespace example {

struct ResNetOptions {
  std::array<int64_t, 4> blocks = {3, 4, 6, 3};  // of layer1 to layer4
  int64_t width = 64;                            // channels of the first convolution
  int64_t classes = 10;
};

class ResNetImpl : public torch::nn::Module {
 public:
  explicit ResNetImpl(const ResNetOptions& options);
  // float [batch, 3, 32, 32] to logits [batch, classes].
  at::Tensor forward(const at::Tensor& pixels);

 private:
  using Layer = ac2::Checkpointed<torch::nn::Sequential>;

  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  std::array<Layer, 4> layers_;
  torch::nn::Linear end_point_;
};
TORCH_MODULE(ResNet);

}  // namespace example
