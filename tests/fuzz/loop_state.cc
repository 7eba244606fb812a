#include "tests/fuzz/loop_state.h"

namespace ac2::test {

namespace {

constexpr double kRate = 0.01;

std::unique_ptr<torch::optim::Optimizer> optimizer_for(LoopOptimizer kind, const Tensors& weights) {
  switch (kind) {
    case LoopOptimizer::kSgd:
      return std::make_unique<torch::optim::SGD>(weights, torch::optim::SGDOptions(kRate).momentum(0.9));
    case LoopOptimizer::kAdam:
      return std::make_unique<torch::optim::Adam>(weights, torch::optim::AdamOptions(kRate));
    case LoopOptimizer::kRmsProp:
      return std::make_unique<torch::optim::RMSprop>(weights, torch::optim::RMSpropOptions(kRate).momentum(0.9));
    default:
      return nullptr;
  }
}

torch::nn::Sequential layers_of(LoopLayers kind) {
  torch::nn::Sequential layers;
  if (kind == LoopLayers::kProduct) return layers;
  layers->push_back(torch::nn::Linear(kLoopWidth, kLoopWidth));
  if (kind == LoopLayers::kBatchNorm) layers->push_back(torch::nn::BatchNorm1d(kLoopWidth));
  layers->push_back(torch::nn::GELU());
  if (kind == LoopLayers::kDropout) {
    layers->push_back(torch::nn::Dropout(0.25));
    layers->push_back(torch::nn::Linear(kLoopWidth, kLoopWidth));
  }
  return layers;
}

}  // namespace

LoopModelKind LoopModelKind::draw(Dice& dice) {
  LoopModelKind kind;
  kind.layers = static_cast<LoopLayers>(dice.roll(kLoopLayers));
  kind.optimizer = static_cast<LoopOptimizer>(dice.roll(kLoopOptimizers));
  return kind;
}

std::string LoopModelKind::words() const {
  static constexpr const char* kLayers[] = {"gelu(x w)", "linear, GELU", "linear, BatchNorm, GELU",
                                            "linear, GELU, dropout, linear"};
  static constexpr const char* kLearning[] = {"SGD with momentum", "Adam", "RMSprop with momentum",
                                              "SGD with momentum by hand", "Adam by hand"};
  return std::string(kLayers[static_cast<int>(layers)]) + "; " + kLearning[static_cast<int>(optimizer)];
}

LoopModel::LoopModel(const LoopModelKind& kind) : kind_(kind), layers_(layers_of(kind.layers)) {
  weights = layers_->parameters();
  if (weights.empty()) weights.push_back((at::randn({kLoopWidth, kLoopWidth}) * 0.3).requires_grad_(true));
  for (const at::Tensor& w : weights) {
    averages.push_back(w.detach().clone());
    first_moments_.push_back(at::zeros_like(w));
    second_moments_.push_back(at::zeros_like(w));
  }
  optimizer_ = optimizer_for(kind.optimizer, weights);
}

at::Tensor LoopModel::forward(const at::Tensor& x) {
  return layers_->is_empty() ? at::gelu(x.mm(weights[0])) : layers_->forward(x);
}

void LoopModel::learn() {
  if (optimizer_ != nullptr) {
    optimizer_->step();
    return;
  }
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i].grad().defined()) learn_by_hand(i, weights[i].grad());
  }
}

void LoopModel::learn_by_hand(size_t i, const at::Tensor& gradient) {
  at::Tensor &first = first_moments_[i], &second = second_moments_[i];
  if (kind_.optimizer == LoopOptimizer::kSgdByHand) {
    first.mul_(0.9).add_(gradient);
    weights[i].sub_(kRate * first);
    return;
  }
  first = 0.9 * first + 0.1 * gradient;
  second = 0.99 * second + 0.01 * gradient.square();
  weights[i].addcdiv_(first, second.sqrt() + 1e-8, -kRate);
}

LoopState::LoopState(const std::vector<LoopModelKind>& kinds) {
  for (const LoopModelKind& kind : kinds) models.emplace_back(kind);
  data = at::randn({4 * kLoopRows, kLoopWidth});
  x = at::randn({kLoopRows, kLoopWidth});
  y = x;
  h = at::randn({kLoopRows, kLoopWidth});
  mean = at::zeros({kLoopRows, kLoopWidth});
  noise = at::zeros({kLoopRows, kLoopWidth});
  window = at::zeros({kLoopRows, kLoopWidth});
  total = at::zeros({});
  last_loss = at::zeros({});
}

bool LoopState::is_pending() const {
  return loss.defined() || y.requires_grad() || h.requires_grad();
}

void LoopState::settle() {
  loss.reset();
  if (y.requires_grad()) y = y.detach();
  if (h.requires_grad()) h = h.detach();
}

Tensors LoopState::carried() const {
  Tensors all = {x, y, loss, last_loss, h, total, mean, noise, window};
  all.insert(all.end(), last.begin(), last.end());
  all.insert(all.end(), kept.begin(), kept.end());
  for (const LoopModel& model : models) {
    for (const Tensors& some :
         {model.weights, model.averages, model.buffers(), model.first_moments_, model.second_moments_}) {
      all.insert(all.end(), some.begin(), some.end());
    }
    for (const at::Tensor& w : model.weights) all.push_back(w.grad());
  }
  return all;
}

}  // namespace ac2::test
