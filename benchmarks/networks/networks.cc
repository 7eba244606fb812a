#include "benchmarks/networks/networks.h"

#include <cmath>
#include <tuple>
#include <utility>

#include "absl/strings/str_join.h"

namespace peers {
namespace {

namespace nn = torch::nn;

// Ops on 8 elements, where the kernel is nothing and the bookkeeping everything. Multiplying and dividing by the same
// keeps values and gradients from running away.
class Chain : public Network {
 public:
  explicit Chain(int64_t pairs) : pairs_(pairs) { factor_ = register_parameter("weight", at::ones({8})); }

  at::Tensor input() const override { return by_formula({8}, 0, 0.1, 1); }
  at::Tensor forward(const at::Tensor& x, const Region& region) override {
    return region([&] {
      at::Tensor y = x;
      for (int64_t i = 0; i < pairs_; ++i) y = (y * factor_) / factor_;
      return Tensors{y};
    })[0];
  }

 private:
  int64_t pairs_;
  at::Tensor factor_;
};

struct GptSize {
  int64_t layers, dim, heads, context, batch;
};

// x + attention(norm(x)), then x + mlp(norm(x)): the block of examples/gpt_model.h, but for at::linear, which is what
// Python's Linear calls. torch::nn::Linear multiplies and then adds the bias in place.
class GptBlock : public nn::Module {
 public:
  explicit GptBlock(const GptSize& size)
      : heads_(size.heads),
        norm1_(register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({size.dim})))),
        qkv_(register_module("qkv", nn::Linear(size.dim, 3 * size.dim))),
        projection_(register_module("projection", nn::Linear(size.dim, size.dim))),
        norm2_(register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({size.dim})))),
        expand_(register_module("expand", nn::Linear(size.dim, 4 * size.dim))),
        contract_(register_module("contract", nn::Linear(4 * size.dim, size.dim))) {}

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = x + attend(norm1_->forward(x));
    return y + linear(contract_, at::gelu(linear(expand_, norm2_->forward(y))));
  }

 private:
  static at::Tensor linear(const nn::Linear& module, const at::Tensor& x) {
    return at::linear(x, module->weight, module->bias);
  }
  at::Tensor attend(const at::Tensor& x) {
    const int64_t batch = x.size(0), time = x.size(1), dim = x.size(2);
    const auto qkv = linear(qkv_, x).view({batch, time, 3, heads_, dim / heads_}).permute({2, 0, 3, 1, 4}).unbind(0);
    const at::Tensor mixed = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], /*attn_mask=*/{},
                                                              /*dropout_p=*/0.0, /*is_causal=*/true);
    return linear(projection_, mixed.transpose(1, 2).reshape({batch, time, dim}));
  }

  int64_t heads_;
  nn::LayerNorm norm1_;
  nn::Linear qkv_, projection_;
  nn::LayerNorm norm2_;
  nn::Linear expand_, contract_;
};

// Each block a part.
class GptBlocks : public Network {
 public:
  explicit GptBlocks(const GptSize& size) : size_(size) {
    for (int64_t i = 0; i < size.layers; ++i) blocks_->push_back(GptBlock(size));
    register_module("blocks", blocks_);
  }

  at::Tensor input() const override { return by_formula({size_.batch, size_.context, size_.dim}, 0, 1); }
  at::Tensor forward(const at::Tensor& x, const Region& region) override {
    at::Tensor y = x;
    for (const auto& module : *blocks_) {
      auto& block = *module->as<GptBlock>();
      y = region([&] { return Tensors{block.forward(y)}; })[0];
    }
    return y;
  }

 private:
  GptSize size_;
  nn::ModuleList blocks_;
};

nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

class BasicBlock : public nn::Module {
 public:
  BasicBlock(int64_t in, int64_t out, int64_t stride)
      : conv1_(register_module("conv1", conv(in, out, 3, stride))),
        bn1_(register_module("bn1", nn::BatchNorm2d(out))),
        conv2_(register_module("conv2", conv(out, out, 3, 1))),
        bn2_(register_module("bn2", nn::BatchNorm2d(out))) {
    if (stride == 1 && in == out) return;
    shortcut_ = register_module("shortcut", nn::Sequential(conv(in, out, 1, stride), nn::BatchNorm2d(out)));
  }

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = bn1_->forward(conv1_->forward(x)).relu_();
    y = bn2_->forward(conv2_->forward(y));
    y += shortcut_ ? shortcut_->forward(x) : x;
    return y.relu_();
  }

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d bn2_;
  nn::Sequential shortcut_{nullptr};
};

// As torchvision's, writes in place included; each block a part.
class ResNet18 : public Network {
 public:
  ResNet18(int64_t batch, int64_t pixels, int64_t width)
      : batch_(batch),
        pixels_(pixels),
        conv1_(register_module("conv1", nn::Conv2d(nn::Conv2dOptions(3, width, 7).stride(2).padding(3).bias(false)))),
        bn1_(register_module("bn1", nn::BatchNorm2d(width))),
        head_(nullptr) {
    int64_t in = width;
    for (int64_t layer = 0; layer < 4; ++layer) {
      const int64_t out = width << layer;
      for (int64_t i = 0; i < 2; ++i) {
        blocks_->push_back(BasicBlock(in, out, i == 0 && layer > 0 ? 2 : 1));
        in = out;
      }
    }
    register_module("blocks", blocks_);
    head_ = register_module("head", nn::Linear(in, 1000));
  }

  at::Tensor input() const override { return by_formula({batch_, 3, pixels_, pixels_}, 0, 1); }
  at::Tensor forward(const at::Tensor& x, const Region& region) override {
    at::Tensor y = at::max_pool2d(bn1_->forward(conv1_->forward(x)).relu_(), 3, 2, 1);
    for (const auto& module : *blocks_) {
      auto& block = *module->as<BasicBlock>();
      y = region([&] { return Tensors{block.forward(y)}; })[0];
    }
    return head_->forward(at::adaptive_avg_pool2d(y, {1, 1}).flatten(1));
  }

 private:
  int64_t batch_, pixels_;
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  nn::ModuleList blocks_;
  nn::Linear head_;
};

struct Recurrence {
  int64_t chunks, steps;  // each chunk, of so many time steps, a part
  int64_t batch, features, hidden;
};

// A sequence in chunks, each of which takes the state that the one before it left.
class Recurrent : public Network {
 public:
  at::Tensor input() const override {
    return by_formula({shape_.chunks * shape_.steps, shape_.batch, shape_.features}, 0, 1);
  }
  at::Tensor forward(const at::Tensor& x, const Region& region) override {
    at::Tensor h = zeros_, c = zeros_;
    Tensors outputs;
    for (int64_t i = 0; i < shape_.chunks; ++i) {
      const at::Tensor chunk = x.narrow(0, i * shape_.steps, shape_.steps);
      const Tensors results = region([&] { return run_chunk(chunk, h, c); });
      outputs.push_back(results[0]);
      h = results[1];
      c = results[2];
    }
    return at::cat(outputs);
  }

 protected:
  Recurrent(const Recurrence& shape, const at::Tensor& zeros) : shape_(shape), zeros_(zeros) {}

  // The outputs of its steps, and the state after it.
  virtual Tensors run_chunk(const at::Tensor& chunk, at::Tensor h, at::Tensor c) = 0;

  const Recurrence shape_;

 private:
  const at::Tensor zeros_;  // the first state
};

// torch::nn::LSTM, two layers: one fused op a layer and chunk.
class FusedLstm : public Recurrent {
 public:
  explicit FusedLstm(const Recurrence& shape)
      : Recurrent(shape, at::zeros({2, shape.batch, shape.hidden})),
        lstm_(register_module("lstm", nn::LSTM(nn::LSTMOptions(shape.features, shape.hidden).num_layers(2)))) {}

 private:
  Tensors run_chunk(const at::Tensor& chunk, at::Tensor h, at::Tensor c) override {
    auto [y, state] = lstm_->forward(chunk, std::make_tuple(h, c));
    return {y, std::get<0>(state), std::get<1>(state)};
  }

  nn::LSTM lstm_;
};

// The same of one layer, cell by cell: some ten small ops a time step.
class LstmCells : public Recurrent {
 public:
  explicit LstmCells(const Recurrence& shape)
      : Recurrent(shape, at::zeros({shape.batch, shape.hidden})),
        cell_(register_module("cell", nn::LSTMCell(shape.features, shape.hidden))) {}

 private:
  Tensors run_chunk(const at::Tensor& chunk, at::Tensor h, at::Tensor c) override {
    Tensors outputs;
    for (int64_t t = 0; t < shape_.steps; ++t) {
      std::tie(h, c) = cell_->forward(chunk.select(0, t), std::make_tuple(h, c));
      outputs.push_back(h);
    }
    return {at::stack(outputs), h, c};
  }

  nn::LSTMCell cell_;
};

// A binary tree down to its leaves and up again, one part: at its widest, as many branches live at once as it has
// leaves.
class Tree : public Network {
 public:
  Tree(int64_t depth, int64_t batch, int64_t features) : batch_(batch), features_(features) {
    for (int64_t i = 0; i < depth; ++i) linears_->push_back(nn::Linear(features, features));
    register_module("linears", linears_);
  }

  at::Tensor input() const override { return by_formula({batch_, features_}, 0, 1); }
  at::Tensor forward(const at::Tensor& x, const Region& region) override {
    return region([&] {
      Tensors level = {x};
      for (const auto& module : *linears_) level = split(level, *module->as<nn::LinearImpl>());
      while (level.size() > 1) level = join(level);
      return level;
    })[0];
  }

 private:
  static Tensors split(const Tensors& level, nn::LinearImpl& linear) {
    Tensors next;
    for (const at::Tensor& t : level) {
      next.push_back(at::gelu(t));
      next.push_back(at::tanh(linear.forward(t)));
    }
    return next;
  }
  static Tensors join(const Tensors& level) {
    Tensors next;
    for (size_t i = 0; i < level.size(); i += 2) next.push_back(at::sigmoid(level[i] * level[i + 1]));
    return next;
  }

  int64_t batch_, features_;
  nn::ModuleList linears_;
};

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// Matrices and kernels by their fan-in; norms' weights near 1; all else small.
void fill(Network& network) {
  const torch::NoGradGuard no_grad;
  double seed = 0;
  for (auto& parameter : network.named_parameters()) {
    at::Tensor& value = parameter.value();
    seed += 1;
    if (value.dim() > 1) {
      const auto fan_in = static_cast<double>(value.numel() / value.size(0));
      value.copy_(by_formula(value.sizes(), seed, 1 / std::sqrt(fan_in)));
    } else {
      value.copy_(by_formula(value.sizes(), seed, 0.1, ends_with(parameter.key(), "weight") ? 1 : 0));
    }
  }
}

bool is_recurrent(const std::string& name) {
  return name == "lstm" || name == "lstm_cells";
}

Recurrence recurrence(bool tiny) {
  return tiny ? Recurrence{.chunks = 2, .steps = 3, .batch = 2, .features = 4, .hidden = 4}
              : Recurrence{.chunks = 8, .steps = 16, .batch = 16, .features = 128, .hidden = 256};
}

std::shared_ptr<Network> make_recurrent(const std::string& name, const Recurrence& shape) {
  if (name == "lstm") return std::make_shared<FusedLstm>(shape);
  return std::make_shared<LstmCells>(shape);
}

std::shared_ptr<Network> make(const std::string& name, bool tiny) {
  if (name == "chain") return std::make_shared<Chain>(tiny ? 10 : 1'000);
  if (name == "gpt") {
    return std::make_shared<GptBlocks>(tiny ? GptSize{.layers = 2, .dim = 16, .heads = 2, .context = 8, .batch = 2}
                                            : GptSize{.layers = 8, .dim = 256, .heads = 8, .context = 256, .batch = 4});
  }
  if (name == "resnet18") {
    return tiny ? std::make_shared<ResNet18>(2, 32, 4) : std::make_shared<ResNet18>(16, 64, 64);
  }
  if (is_recurrent(name)) return make_recurrent(name, recurrence(tiny));
  if (name == "tree") return tiny ? std::make_shared<Tree>(3, 4, 8) : std::make_shared<Tree>(6, 256, 256);
  return nullptr;
}

}  // namespace

Tensors run_plain(const std::function<Tensors()>& part) {
  return part();
}

const std::vector<std::string>& network_names() {
  static const std::vector<std::string> names = {"chain", "gpt", "resnet18", "lstm", "lstm_cells", "tree"};
  return names;
}

std::shared_ptr<Network> make_network(const std::string& name, Size size) {
  std::shared_ptr<Network> network = make(name, size == Size::kTiny);
  TORCH_CHECK(network, "Unknown model \"", name, "\". Choose one of: ", absl::StrJoin(network_names(), ", "), ".");
  fill(*network);
  return network;
}

std::shared_ptr<Network> make_recurrent_network(const std::string& name, Size size, int64_t chunks) {
  TORCH_CHECK(is_recurrent(name), "The model \"", name, "\" has no chunks. Choose one of: lstm, lstm_cells.");
  TORCH_CHECK(chunks > 0, "A model has at least one chunk, but ", chunks, " were asked for.");
  Recurrence shape = recurrence(size == Size::kTiny);
  shape.chunks = chunks;
  std::shared_ptr<Network> network = make_recurrent(name, shape);
  fill(*network);
  return network;
}

at::Tensor by_formula(at::IntArrayRef sizes, double seed, double scale, double offset) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  const at::Tensor i = at::arange(count, at::kDouble);
  return (i * i).mul_(0.37).add_(seed).sin_().mul_(scale).add_(offset).to(at::kFloat).reshape(sizes);
}

}  // namespace peers
