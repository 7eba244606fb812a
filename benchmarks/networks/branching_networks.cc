#include "benchmarks/networks/branching_networks.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"

namespace peers {
namespace {

namespace nn = torch::nn;

nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

// Appends a convolution, a batch norm and a ReLU.
void add_unit(nn::Sequential& units, int64_t in, int64_t out, int64_t kernel) {
  units->push_back(conv(in, out, kernel));
  units->push_back(nn::BatchNorm2d(out));
  units->push_back(nn::ReLU(nn::ReLUOptions(true)));
}

// Such units, one after the other, with these kernels.
nn::Sequential conv_units(int64_t in, int64_t out, const std::vector<int64_t>& kernels) {
  nn::Sequential units;
  for (const int64_t kernel : kernels) {
    add_unit(units, std::exchange(in, out), out, kernel);
  }
  return units;
}

class UNet : public Network {
 public:
  UNet(int64_t levels, int64_t channels, int64_t side) : side_(side) {
    int64_t in = 3;
    for (int64_t level = 0; level < levels; ++level) {
      const int64_t out = channels << level;
      down_->push_back(conv_units(in, out, {3, 3}));
      in = out;
    }
    for (int64_t level = levels - 1; level > 0; --level) {
      const int64_t out = channels << (level - 1);
      up_->push_back(nn::ConvTranspose2d(nn::ConvTranspose2dOptions(2 * out, out, 2).stride(2)));
      joined_->push_back(conv_units(2 * out, out, {3, 3}));
    }
    register_module("down", down_);
    register_module("up", up_);
    register_module("joined", joined_);
  }

  at::Tensor input() const override { return by_formula({4, 3, side_, side_}, 1, 1); }
  at::Tensor forward(const at::Tensor& input, const Region& region) override {
    at::Tensor x = input;
    std::vector<at::Tensor> skips;
    for (size_t level = 0; level < down_->size(); ++level) {
      x = region([&] {
        return Tensors{down_[level]->as<nn::SequentialImpl>()->forward(level == 0 ? x : at::max_pool2d(x, 2))};
      })[0];
      skips.push_back(x);
    }
    for (size_t i = 0; i < up_->size(); ++i) {
      x = region([&] {
        const at::Tensor larger = up_[i]->as<nn::ConvTranspose2dImpl>()->forward(x);
        return Tensors{
            joined_[i]->as<nn::SequentialImpl>()->forward(at::cat({skips[skips.size() - 2 - i], larger}, 1))};
      })[0];
    }
    return x;
  }

 private:
  int64_t side_;
  nn::ModuleList down_, up_, joined_;
};

class Inception : public Network {
 public:
  Inception(int64_t blocks, int64_t width, int64_t side) : side_(side) {
    stem_ = register_module("stem", conv_units(3, 4 * width, {3}));
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t in = 4 * width;
      branches_->push_back(conv_units(in, width, {1}));
      branches_->push_back(conv_units(in, width, {1, 3}));
      branches_->push_back(conv_units(in, width, {1, 3, 3}));
      nn::Sequential pooled(nn::AvgPool2d(nn::AvgPool2dOptions(3).stride(1).padding(1)));
      add_unit(pooled, in, width, 1);
      branches_->push_back(pooled);
    }
    register_module("branches", branches_);
  }

  at::Tensor input() const override { return by_formula({8, 3, side_, side_}, 1, 1); }
  at::Tensor forward(const at::Tensor& input, const Region& region) override {
    at::Tensor x = stem_->forward(input);
    for (size_t first = 0; first < branches_->size(); first += 4) {
      x = region([&] {
        Tensors results;
        for (size_t i = first; i < first + 4; ++i) {
          results.push_back(branches_[i]->as<nn::SequentialImpl>()->forward(x));
        }
        return Tensors{at::cat(results, 1)};
      })[0];
      if (first % 12 == 8) x = at::max_pool2d(x, 2);
    }
    return x.mean({2, 3});
  }

 private:
  int64_t side_;
  nn::Sequential stem_{nullptr};
  nn::ModuleList branches_;
};

class TreeLstm : public Network {
 public:
  TreeLstm(int64_t levels, int64_t batch, int64_t hidden)
      : levels_(levels),
        batch_(batch),
        hidden_(hidden),
        leaf_(register_module("leaf", nn::Linear(hidden, 3 * hidden))),
        gates_(register_module("gates", nn::Linear(hidden, 3 * hidden))),
        forget_(register_module("forget", nn::Linear(hidden, hidden))) {}

  // One for each leaf.
  at::Tensor input() const override { return by_formula({int64_t{1} << levels_, batch_, hidden_}, 1, 1); }
  at::Tensor forward(const at::Tensor& input, const Region& region) override {
    std::vector<Tensors> nodes;  // hidden state and cell of each
    for (const at::Tensor& leaf : input.unbind(0)) {
      nodes.push_back(region([&] { return node(leaf_->forward(leaf), {}); }));
    }
    while (nodes.size() > 1) {
      std::vector<Tensors> parents;
      for (size_t i = 0; i < nodes.size(); i += 2) {
        parents.push_back(region([&] {
          const Tensors &left = nodes[i], &right = nodes[i + 1];
          const at::Tensor kept =
              at::sigmoid(forget_->forward(left[0])) * left[1] + at::sigmoid(forget_->forward(right[0])) * right[1];
          return node(gates_->forward(left[0] + right[0]), kept);
        }));
      }
      nodes = std::move(parents);
    }
    return nodes[0][0];
  }

 private:
  static Tensors node(const at::Tensor& gates, const at::Tensor& kept) {
    const auto parts = gates.chunk(3, 1);
    at::Tensor cell = at::sigmoid(parts[0]) * at::tanh(parts[2]);
    if (kept.defined()) cell = cell + kept;
    return {at::sigmoid(parts[1]) * at::tanh(cell), cell};
  }

  int64_t levels_, batch_, hidden_;
  nn::Linear leaf_, gates_, forget_;
};

class Gan : public Network {
 public:
  Gan(int64_t channels, int64_t batch) : batch_(batch) {
    const auto larger = [](int64_t in, int64_t out) {
      return nn::ConvTranspose2d(nn::ConvTranspose2dOptions(in, out, 4).stride(2).padding(1).bias(false));
    };
    const auto smaller = [](int64_t in, int64_t out) {
      return nn::Conv2d(nn::Conv2dOptions(in, out, 4).stride(2).padding(1).bias(false));
    };
    const nn::LeakyReLUOptions leaky = nn::LeakyReLUOptions().negative_slope(0.2);
    for (int64_t factor = 8; factor > 1; factor /= 2) {
      generator_->push_back(larger(factor * channels, factor / 2 * channels));
      generator_->push_back(nn::BatchNorm2d(factor / 2 * channels));
      generator_->push_back(nn::ReLU(nn::ReLUOptions(true)));
    }
    generator_->push_back(larger(channels, 3));
    generator_->push_back(nn::Tanh());
    int64_t in = 3;
    for (int64_t factor = 1; factor <= 8; factor *= 2) {
      discriminator_->push_back(smaller(std::exchange(in, factor * channels), factor * channels));
      discriminator_->push_back(nn::BatchNorm2d(in));
      discriminator_->push_back(nn::LeakyReLU(leaky));
    }
    discriminator_->push_back(conv(in, 1, 3));
    register_module("generator", generator_);
    register_module("discriminator", discriminator_);
    noise_ = by_formula({batch_, 8 * channels, 4, 4}, 2, 1);
  }

  // True images.
  at::Tensor input() const override { return by_formula({batch_, 3, 64, 64}, 1, 1); }
  at::Tensor forward(const at::Tensor& images, const Region& region) override {
    const at::Tensor made = region([&] { return Tensors{generator_->forward(noise_)}; })[0];
    const auto judged = [&](const at::Tensor& x) {
      return region([&] { return Tensors{discriminator_->forward(x)}; })[0];
    };
    const at::Tensor told_apart = at::softplus(-judged(images)) + at::softplus(judged(made.detach()));
    return told_apart + at::softplus(-judged(made));
  }

 private:
  int64_t batch_;
  nn::Sequential generator_, discriminator_;
  at::Tensor noise_;
};

}  // namespace

const std::vector<std::string>& branching_network_names() {
  static const std::vector<std::string> names = {"unet", "inception", "tree_lstm", "gan"};
  return names;
}

std::shared_ptr<Network> make_branching_network(const std::string& name, Size size) {
  const bool tiny = size == Size::kTiny;
  if (name == "unet") return tiny ? std::make_shared<UNet>(2, 2, 8) : std::make_shared<UNet>(5, 8, 96);
  if (name == "inception") return tiny ? std::make_shared<Inception>(2, 2, 8) : std::make_shared<Inception>(9, 24, 48);
  if (name == "tree_lstm") return tiny ? std::make_shared<TreeLstm>(2, 2, 4) : std::make_shared<TreeLstm>(6, 32, 128);
  if (name == "gan") return tiny ? std::make_shared<Gan>(1, 2) : std::make_shared<Gan>(16, 16);
  TORCH_CHECK(false, "Unknown model \"", name, "\". Choose one of: ", absl::StrJoin(branching_network_names(), ", "),
              ".");
}

}  // namespace peers
