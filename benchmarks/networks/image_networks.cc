#include "benchmarks/networks/image_networks.h"

#include <array>
#include <utility>

#include "absl/strings/str_join.h"

namespace peers {
namespace {

namespace nn = torch::nn;

nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1, int64_t groups = 1) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).groups(groups).bias(false));
}

// An input of images, and a part for each of `blocks_`.
class ImageNetwork : public Network {
 public:
  at::Tensor input() const override { return by_formula({batch_, 3, pixels_, pixels_}, 0, 1); }

 protected:
  ImageNetwork(int64_t batch, int64_t pixels) : batch_(batch), pixels_(pixels) {}

  // A block's results are the next one's input.
  at::Tensor run_blocks(at::Tensor x, const Region& region) {
    for (const auto& block : *blocks_) {
      auto& sequence = *block->as<nn::SequentialImpl>();
      x = region([&] { return Tensors{sequence.forward(x)}; })[0];
    }
    return x;
  }

  nn::ModuleList blocks_;

 private:
  int64_t batch_, pixels_;
};

class BottleneckImpl : public nn::Module {
 public:
  BottleneckImpl(int64_t in, int64_t width, int64_t stride)
      : body_(register_module("body", nn::Sequential(conv(in, width, 1), nn::BatchNorm2d(width),
                                                     nn::ReLU(nn::ReLUOptions(true)), conv(width, width, 3, stride),
                                                     nn::BatchNorm2d(width), nn::ReLU(nn::ReLUOptions(true)),
                                                     conv(width, 4 * width, 1), nn::BatchNorm2d(4 * width)))) {
    if (stride == 1 && in == 4 * width) return;
    shortcut_ = register_module("shortcut", nn::Sequential(conv(in, 4 * width, 1, stride), nn::BatchNorm2d(4 * width)));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = body_->forward(x);
    y += shortcut_ ? shortcut_->forward(x) : x;
    return y.relu_();
  }

 private:
  nn::Sequential body_, shortcut_{nullptr};
};
TORCH_MODULE(Bottleneck);

class ResNet50 : public ImageNetwork {
 public:
  ResNet50(int64_t batch, int64_t pixels, int64_t width)
      : ImageNetwork(batch, pixels),
        stem_(register_module("stem", nn::Sequential(conv(3, width, 7, 2), nn::BatchNorm2d(width)))) {
    int64_t in = width;
    const std::vector<int64_t> counts = {3, 4, 6, 3};
    for (size_t layer = 0; layer < counts.size(); ++layer) {
      const int64_t inner = width << layer;
      for (int64_t i = 0; i < counts[layer]; ++i) {
        blocks_->push_back(nn::Sequential(Bottleneck(in, inner, i == 0 && layer > 0 ? 2 : 1)));
        in = 4 * inner;
      }
    }
    register_module("blocks", blocks_);
    head_ = register_module("head", nn::Linear(in, 1000));
  }
  at::Tensor forward(const at::Tensor& x, const Region& region) override {
    const at::Tensor y = run_blocks(at::max_pool2d(stem_->forward(x).relu_(), 3, 2, 1), region);
    return head_->forward(at::adaptive_avg_pool2d(y, {1, 1}).flatten(1));
  }

 private:
  nn::Sequential stem_;
  nn::Linear head_{nullptr};
};

// Where a block halves the image and doubles the channels, its shortcut has no parameters: every second pixel, and
// zeros for the new channels (He et al., "Deep Residual Learning for Image Recognition", section 4.2).
class CifarBlockImpl : public nn::Module {
 public:
  CifarBlockImpl(int64_t in, int64_t width)
      : new_channels_(width - in),
        body_(register_module(
            "body", nn::Sequential(conv(in, width, 3, in == width ? 1 : 2), nn::BatchNorm2d(width),
                                   nn::ReLU(nn::ReLUOptions(true)), conv(width, width, 3), nn::BatchNorm2d(width)))) {}
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = body_->forward(x);
    y += new_channels_ == 0 ? x : shortcut(x);
    return y.relu_();
  }

 private:
  at::Tensor shortcut(const at::Tensor& x) const {
    using torch::indexing::None;
    using torch::indexing::Slice;
    const at::Tensor smaller = x.index({Slice(), Slice(), Slice(None, None, 2), Slice(None, None, 2)});
    return at::constant_pad_nd(smaller, {0, 0, 0, 0, new_channels_ / 2, new_channels_ / 2});
  }

  int64_t new_channels_;
  nn::Sequential body_;
};
TORCH_MODULE(CifarBlock);

// For images of CIFAR: 6n + 2 layers, n = 5.
class ResNet32 : public ImageNetwork {
 public:
  ResNet32(int64_t batch, int64_t width)
      : ImageNetwork(batch, 32),
        stem_(register_module("stem", nn::Sequential(conv(3, width, 3), nn::BatchNorm2d(width)))) {
    int64_t in = width;
    for (int64_t layer = 0; layer < 3; ++layer) {
      for (int64_t i = 0; i < 5; ++i) {
        blocks_->push_back(nn::Sequential(CifarBlock(in, width << layer)));
        in = width << layer;
      }
    }
    register_module("blocks", blocks_);
    head_ = register_module("head", nn::Linear(in, 10));
  }
  at::Tensor forward(const at::Tensor& x, const Region& region) override {
    const at::Tensor y = run_blocks(stem_->forward(x).relu_(), region);
    return head_->forward(at::adaptive_avg_pool2d(y, {1, 1}).flatten(1));
  }

 private:
  nn::Sequential stem_;
  nn::Linear head_{nullptr};
};

nn::ReLU6 relu6() {
  return nn::ReLU6(nn::ReLU6Options(true));
}

class InvertedResidualImpl : public nn::Module {
 public:
  InvertedResidualImpl(int64_t in, int64_t out, int64_t stride, int64_t expand) : adds_(stride == 1 && in == out) {
    const int64_t inner = expand * in;
    if (expand != 1) {
      body_->push_back(conv(in, inner, 1));
      body_->push_back(nn::BatchNorm2d(inner));
      body_->push_back(relu6());
    }
    body_->push_back(conv(inner, inner, 3, stride, inner));
    body_->push_back(nn::BatchNorm2d(inner));
    body_->push_back(relu6());
    body_->push_back(conv(inner, out, 1));
    body_->push_back(nn::BatchNorm2d(out));
    register_module("body", body_);
  }
  at::Tensor forward(const at::Tensor& x) { return adds_ ? x + body_->forward(x) : body_->forward(x); }

 private:
  bool adds_;
  nn::Sequential body_;
};
TORCH_MODULE(InvertedResidual);

class MobileNetV2 : public ImageNetwork {
 public:
  MobileNetV2(int64_t batch, int64_t pixels, int64_t share)
      : ImageNetwork(batch, pixels),
        stem_(
            register_module("stem", nn::Sequential(conv(3, 32 / share, 3, 2), nn::BatchNorm2d(32 / share), relu6()))) {
    int64_t in = 32 / share;
    const std::vector<std::array<int64_t, 4>> stages = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                                        {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    for (const auto& [expand, channels, count, stride] : stages) {
      for (int64_t i = 0; i < count; ++i) {
        blocks_->push_back(nn::Sequential(InvertedResidual(in, channels / share, i == 0 ? stride : 1, expand)));
        in = channels / share;
      }
    }
    register_module("blocks", blocks_);
    tail_ = register_module("tail", nn::Sequential(conv(in, 1280, 1), nn::BatchNorm2d(1280), relu6()));
    head_ = register_module("head", nn::Linear(1280, 1000));
  }
  at::Tensor forward(const at::Tensor& x, const Region& region) override {
    const at::Tensor y = tail_->forward(run_blocks(stem_->forward(x), region));
    return head_->forward(at::adaptive_avg_pool2d(y, {1, 1}).flatten(1));
  }

 private:
  nn::Sequential stem_, tail_{nullptr};
  nn::Linear head_{nullptr};
};

class DenseLayerImpl : public nn::Module {
 public:
  DenseLayerImpl(int64_t in, int64_t growth)
      : norm1_(register_module("norm1", nn::BatchNorm2d(in))),
        conv1_(register_module("conv1", conv(in, 4 * growth, 1))),
        norm2_(register_module("norm2", nn::BatchNorm2d(4 * growth))),
        conv2_(register_module("conv2", conv(4 * growth, growth, 3))) {}
  at::Tensor forward(const Tensors& features) {
    const at::Tensor y = conv1_->forward(norm1_->forward(at::cat(features, 1)).relu_());
    return conv2_->forward(norm2_->forward(y).relu_());
  }

 private:
  nn::BatchNorm2d norm1_;
  nn::Conv2d conv1_;
  nn::BatchNorm2d norm2_;
  nn::Conv2d conv2_;
};
TORCH_MODULE(DenseLayer);

class DenseNet121 : public ImageNetwork {
 public:
  DenseNet121(int64_t batch, int64_t pixels, int64_t growth)
      : ImageNetwork(batch, pixels),
        stem_(register_module("stem", nn::Sequential(conv(3, 2 * growth, 7, 2), nn::BatchNorm2d(2 * growth)))) {
    int64_t channels = 2 * growth;
    const std::vector<int64_t> counts = {6, 12, 24, 16};
    for (size_t i = 0; i < counts.size(); ++i) {
      nn::ModuleList layers;
      for (int64_t j = 0; j < counts[i]; ++j) {
        layers->push_back(DenseLayer(channels, growth));
        channels += growth;
      }
      dense_->push_back(layers);
      nn::Sequential transition{nn::BatchNorm2d(channels), nn::ReLU(nn::ReLUOptions(true))};
      if (i + 1 < counts.size()) {
        transition->push_back(conv(channels, channels / 2, 1));
        transition->push_back(nn::AvgPool2d(2));
        channels /= 2;
      }
      blocks_->push_back(transition);
    }
    register_module("dense", dense_);
    register_module("transitions", blocks_);
    head_ = register_module("head", nn::Linear(channels, 1000));
  }
  at::Tensor forward(const at::Tensor& x, const Region& region) override {
    at::Tensor y = at::max_pool2d(stem_->forward(x).relu_(), 3, 2, 1);
    for (size_t i = 0; i < dense_->size(); ++i) {
      Tensors features = {std::move(y)};
      for (const auto& module : *dense_[i]->as<nn::ModuleListImpl>()) {
        auto& layer = *module->as<DenseLayerImpl>();
        features.push_back(region([&] { return Tensors{layer.forward(features)}; })[0]);
      }
      y = blocks_[i]->as<nn::SequentialImpl>()->forward(at::cat(features, 1));
    }
    return head_->forward(at::adaptive_avg_pool2d(y, {1, 1}).flatten(1));
  }

 private:
  nn::Sequential stem_;
  nn::ModuleList dense_;
  nn::Linear head_{nullptr};
};

std::shared_ptr<Network> make(const std::string& name, bool tiny) {
  const int64_t batch = tiny ? 2 : 16, pixels = tiny ? 32 : 96;
  if (name == "resnet32") return std::make_shared<ResNet32>(tiny ? 2 : 64, tiny ? 4 : 16);
  if (name == "resnet50") return std::make_shared<ResNet50>(batch, pixels, tiny ? 4 : 64);
  if (name == "mobilenet_v2") return std::make_shared<MobileNetV2>(batch, pixels, tiny ? 4 : 1);
  if (name == "densenet121") return std::make_shared<DenseNet121>(tiny ? 2 : 8, pixels, tiny ? 4 : 32);
  return nullptr;
}

}  // namespace

const std::vector<std::string>& image_network_names() {
  static const std::vector<std::string> names = {"resnet32", "resnet50", "mobilenet_v2", "densenet121"};
  return names;
}

std::shared_ptr<Network> make_image_network(const std::string& name, Size size) {
  std::shared_ptr<Network> network = make(name, size == Size::kTiny);
  TORCH_CHECK(network, "Unknown model \"", name, "\". Choose one of: ", absl::StrJoin(image_network_names(), ", "),
              ".");
  return network;
}

}  // namespace peers
