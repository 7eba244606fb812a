#include "tests/support/peak_networks.h"

#include <torch/torch.h>

#include <array>
#include <iostream>
#include <utility>
#include <vector>

#include "ac2/memory_budget.h"
#include "ac2/scope.h"
#include "benchmarks/networks/networks.h"
#include "tests/support/default_device.h"
#include "tests/support/regions.h"

namespace ac2::test {

namespace {

namespace nn = torch::nn;

nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

// ResNet-50, with an eighth of its channels.
class Bottleneck : public nn::Module {
 public:
  Bottleneck(int64_t in, int64_t width, int64_t stride) {
    const int64_t out = 4 * width;
    body_->push_back(conv(in, width, 1));
    body_->push_back(nn::BatchNorm2d(width));
    body_->push_back(nn::ReLU(nn::ReLUOptions(true)));
    body_->push_back(conv(width, width, 3, stride));
    body_->push_back(nn::BatchNorm2d(width));
    body_->push_back(nn::ReLU(nn::ReLUOptions(true)));
    body_->push_back(conv(width, out, 1));
    body_->push_back(nn::BatchNorm2d(out));
    register_module("body", body_);
    if (stride != 1 || in != out) {
      shortcut_ = register_module("shortcut", nn::Sequential(conv(in, out, 1, stride), nn::BatchNorm2d(out)));
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = body_->forward(x);
    y += shortcut_ ? shortcut_->forward(x) : x;
    return y.relu_();
  }

 private:
  nn::Sequential body_, shortcut_{nullptr};
};

class ResNet50 : public nn::Module {
 public:
  ResNet50() {
    int64_t in = 8;
    stem_ = register_module("stem", nn::Sequential(conv(3, in, 7, 2), nn::BatchNorm2d(in)));
    const std::vector<int64_t> counts = {3, 4, 6, 3};
    for (size_t layer = 0; layer < counts.size(); ++layer) {
      const int64_t width = int64_t{8} << layer;
      for (int64_t i = 0; i < counts[layer]; ++i) {
        blocks_->push_back(std::make_shared<Bottleneck>(in, width, i == 0 && layer > 0 ? 2 : 1));
        in = 4 * width;
      }
    }
    register_module("blocks", blocks_);
  }
  at::Tensor forward(at::Tensor x) {
    x = at::max_pool2d(stem_->forward(x).relu_(), 3, 2, 1);
    for (const auto& block : *blocks_) x = block->as<Bottleneck>()->forward(x);
    return x.mean({2, 3});
  }

 private:
  nn::Sequential stem_{nullptr};
  nn::ModuleList blocks_;
};

// Down and up again, with a skip on each level.
class UNet : public nn::Module {
 public:
  UNet() {
    int64_t in = 3;
    for (const int64_t out : kChannels) {
      down_->push_back(convolve(std::exchange(in, out), out));
    }
    for (size_t level = kChannels.size() - 1; level > 0; --level) {
      const int64_t out = kChannels[level - 1];
      up_->push_back(nn::ConvTranspose2d(nn::ConvTranspose2dOptions(kChannels[level], out, 2).stride(2)));
      joined_->push_back(convolve(2 * out, out));
    }
    register_module("down", down_);
    register_module("up", up_);
    register_module("joined", joined_);
  }
  at::Tensor forward(at::Tensor x) {
    std::vector<at::Tensor> skips;
    for (size_t level = 0; level < down_->size(); ++level) {
      x = down_[level]->as<nn::SequentialImpl>()->forward(level == 0 ? x : at::max_pool2d(x, 2));
      skips.push_back(x);
    }
    for (size_t i = 0; i < up_->size(); ++i) {
      x = up_[i]->as<nn::ConvTranspose2dImpl>()->forward(x);
      x = joined_[i]->as<nn::SequentialImpl>()->forward(at::cat({skips[skips.size() - 2 - i], x}, 1));
    }
    return x;
  }

 private:
  static constexpr std::array<int64_t, 4> kChannels = {8, 16, 32, 64};
  static nn::Sequential convolve(int64_t in, int64_t out) {
    return nn::Sequential(conv(in, out, 3), nn::BatchNorm2d(out), nn::ReLU(nn::ReLUOptions(true)), conv(out, out, 3),
                          nn::BatchNorm2d(out), nn::ReLU(nn::ReLUOptions(true)));
  }

  nn::ModuleList down_, up_, joined_;
};

// Each token goes to the two of four experts that a gate likes best. How many tokens an expert gets, the data decide.
class MixtureOfExperts : public nn::Module {
 public:
  MixtureOfExperts() {
    for (int64_t layer = 0; layer < 6; ++layer) {
      norms_->push_back(nn::LayerNorm(nn::LayerNormOptions({kDim})));
      gates_->push_back(nn::Linear(kDim, kExperts));
      for (int64_t i = 0; i < kExperts; ++i) {
        experts_->push_back(nn::Sequential(nn::Linear(kDim, 4 * kDim), nn::GELU(), nn::Linear(4 * kDim, kDim)));
      }
    }
    register_module("norms", norms_);
    register_module("gates", gates_);
    register_module("experts", experts_);
  }
  at::Tensor forward(at::Tensor x) {
    for (size_t layer = 0; layer < norms_->size(); ++layer) {
      const at::Tensor tokens = norms_[layer]->as<nn::LayerNormImpl>()->forward(x);
      const at::Tensor scores = gates_[layer]->as<nn::LinearImpl>()->forward(tokens).softmax(-1);
      const auto [weights, chosen] = scores.topk(2, -1);
      at::Tensor sum = at::zeros_like(x);
      for (int64_t i = 0; i < kExperts; ++i) {
        const std::vector<at::Tensor> mine = chosen.eq(i).nonzero().unbind(1);
        auto& expert = *experts_[layer * kExperts + i]->as<nn::SequentialImpl>();
        const at::Tensor made = expert.forward(tokens.index_select(0, mine[0]));
        sum = sum.index_add(0, mine[0], made * weights.index({mine[0], mine[1]}).unsqueeze(1));
      }
      x = x + sum;
    }
    return x;
  }

 private:
  static constexpr int64_t kDim = 64, kExperts = 4;

  nn::ModuleList norms_, gates_, experts_;
};

template <class Make>
auto on(c10::Device device, Make&& make) {
  if (device.is_cpu()) {
    return make();
  }
  const DefaultDevice there(device);
  return make();
}

template <class Module>
PeakNetwork made(at::IntArrayRef input, c10::Device device) {
  const std::shared_ptr<Module> module = on(device, [] { return std::make_shared<Module>(); });
  return {module, [module, x = peers::by_formula(input, 1, 1).to(device)] { return module->forward(x); }};
}

}  // namespace

PeakNetwork peak_network(const std::string& name, c10::Device device) {
  torch::manual_seed(1);
  if (name == "resnet50") return made<ResNet50>({16, 3, 96, 96}, device);
  if (name == "unet") return made<UNet>({8, 3, 64, 64}, device);
  if (name == "moe") return made<MixtureOfExperts>({2048, 64}, device);
  const auto network = on(device, [&] { return peers::make_network(name, peers::Size::kFull); });
  return {network, [network, x = network->input().to(device)] { return network->forward(x, peers::run_plain); }};
}

void expect_peak_near_bound(const NetworkAndShare& share, c10::Device device, const PeakMeter& meter) {
  const PeakNetwork network = peak_network(share.name, device);
  const auto take_gradients = [&] {
    Tensors gradients;
    for (at::Tensor parameter : network.module->parameters()) {
      gradients.push_back(parameter.grad().defined() ? parameter.grad().cpu() : at::Tensor());
      parameter.mutable_grad() = at::Tensor();
    }
    return gradients;
  };
  const int64_t plain_peak = meter.peak_of([&] { network.forward().sum().backward(); });
  const Tensors expected = take_gradients();
  int64_t of_gradients = 0;
  for (const at::Tensor& gradient : expected) of_gradients += gradient.defined() ? storage_bytes(gradient) : 0;
  const int64_t bytes = of_gradients + (plain_peak - of_gradients) * share.percent / 100;
  // With modelled costs, so that the same is dropped in every run.
  const MemoryBudget budget = MemoryBudget::peak(meter.allocated() + bytes, /*modelled_costs=*/true);
  int64_t replays = 0;
  const int64_t peak = meter.peak_of([&] {
    at::Tensor loss;
    std::shared_ptr<const Trace> trace;
    {
      const PolicyScope scope({.memory_budget = budget});
      trace = scope.trace();
      loss = network.forward().sum();
    }
    loss.backward();
    replays = trace->stats().recomputed_ops;
  });
  expect_same_bits(take_gradients(), expected, "gradient");
  std::cout << share.name << ": gradients " << of_gradients << ", plain " << plain_peak << ", bound " << bytes
            << ", peak " << peak << " (" << 100.0 * static_cast<double>(peak) / static_cast<double>(bytes) << " %), "
            << replays << " replays, " << budget.times_over() << " times over\n";
  EXPECT_LE(peak, bytes);
  EXPECT_GE(peak, bytes / 100 * 98 - meter.rounding);
  EXPECT_GT(replays, 0);
  EXPECT_EQ(budget.times_over(), 0);
}

}  // namespace ac2::test
