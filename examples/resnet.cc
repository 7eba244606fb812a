#include "examples/resnet.h"

#include <torch/torch.h>

#include <string>

namespace example {
namespace {

constexpr int64_t kExpansion = 4;  // channels a block ends with, to those within

torch::nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

class BottleneckImpl : public torch::nn::Module {
 public:
  BottleneckImpl(int64_t in, int64_t width, int64_t stride)
      : conv1_(register_module("conv1", conv(in, width, 1))),
        conv2_(register_module("conv2", conv(width, width, 3, stride))),
        conv3_(register_module("conv3", conv(width, width * kExpansion, 1))),
        bn1_(register_module("bn1", torch::nn::BatchNorm2d(width))),
        bn2_(register_module("bn2", torch::nn::BatchNorm2d(width))),
        bn3_(register_module("bn3", torch::nn::BatchNorm2d(width * kExpansion))) {
    if (stride == 1 && in == width * kExpansion) return;
    shortcut_ = register_module("shortcut", torch::nn::Sequential(conv(in, width * kExpansion, 1, stride),
                                                                  torch::nn::BatchNorm2d(width * kExpansion)));
  }

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = at::relu(bn1_->forward(conv1_->forward(x)));
    y = at::relu(bn2_->forward(conv2_->forward(y)));
    y = bn3_->forward(conv3_->forward(y));
    return at::relu(y + (shortcut_ ? shortcut_->forward(x) : x));
  }

 private:
  torch::nn::Conv2d conv1_, conv2_, conv3_;
  torch::nn::BatchNorm2d bn1_, bn2_, bn3_;
  torch::nn::Sequential shortcut_{nullptr};
};
TORCH_MODULE(Bottleneck);

}  // namespace

ResNetImpl::ResNetImpl(const ResNetOptions& options)
    : conv1_(register_module("conv1", conv(3, options.width, 3))),
      bn1_(register_module("bn1", torch::nn::BatchNorm2d(options.width))),
      end_point_(nullptr) {
  int64_t in = options.width;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const int64_t width = options.width << i;
    for (int64_t block = 0; block < options.blocks[i]; ++block) {
      layers_[i]->push_back(Bottleneck(in, width, block == 0 && i > 0 ? 2 : 1));
      in = width * kExpansion;
    }
    layers_[i]->checkpointing().set_on(false);
    register_module("layer" + std::to_string(i + 1), layers_[i]);
  }
  end_point_ = register_module("end_point", torch::nn::Linear(in, options.classes));
}

at::Tensor ResNetImpl::forward(const at::Tensor& pixels) {
  at::Tensor x = at::relu(bn1_->forward(conv1_->forward(pixels)));
  for (Layer& layer : layers_) x = layer->forward(x);
  return end_point_->forward(x.mean({2, 3}));
}

}  // namespace example
