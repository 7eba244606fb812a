#include "examples/mesh/mesh_optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

namespace gpt {

namespace {

constexpr double kBeta1 = 0.9, kBeta2 = 0.95, kEpsilon = 1e-8;

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters) gradients.push_back(parameter.grad());
  return gradients;
}

// The opposite of flat().
void copy_parts(const at::Tensor& flat, const std::vector<at::Tensor>& tensors) {
  int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    tensor.copy_(flat.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
}

}  // namespace

MeshOptimizer::MeshOptimizer(const Stage& stage, const MeshOptimizerOptions& options)
    : stage_(stage), options_(options) {
  const at::NoGradGuard no_grad;
  const Communicator& replicas = stage.groups().replicas;
  for (const std::vector<at::Tensor>& unit : stage.units()) {
    for (const at::Tensor& parameter : unit) {
      parameter.mutable_grad() = at::zeros_like(parameter);
      parameters_ += parameter.numel();
    }
    at::Tensor mine = flat(unit);
    if (options_.sharded) {
      const int64_t part = mine.numel() / replicas.size();
      mine = mine.narrow(0, replicas.rank() * part, part);
    }
    // A copy, whatever the dtype.
    const at::Tensor weights = mine.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    states_.push_back({.weights = weights, .mean = at::zeros_like(weights), .square = at::zeros_like(weights)});
  }
}

at::Tensor MeshOptimizer::flat(const std::vector<at::Tensor>& tensors) const {
  std::vector<at::Tensor> parts;
  int64_t size = 0;
  for (const at::Tensor& tensor : tensors) {
    parts.push_back(tensor.reshape({-1}));
    size += tensor.numel();
  }
  const int64_t replicas = stage_.groups().replicas.size();
  if (const int64_t rest = size % replicas) {
    parts.push_back(at::zeros({replicas - rest}, parts[0].options()));
  }
  return at::cat(parts);
}

int64_t MeshOptimizer::parameter_bytes() const {
  return parameters_ * static_cast<int64_t>(c10::elementSize(stage_.model().dtype));
}

int64_t MeshOptimizer::state_bytes() const {
  int64_t bytes = 0;
  for (const State& state : states_) bytes += 3 * static_cast<int64_t>(state.weights.nbytes());
  return bytes;
}

void MeshOptimizer::sum_gradients_seen_in_parts() {
  const std::vector<at::Tensor> gradients = gradients_of(stage_.seen_in_parts());
  if (!gradients.empty()) copy_parts(stage_.groups().tensor.all_reduce(flat(gradients)), gradients);
}

void MeshOptimizer::update(const std::vector<at::Tensor>& unit, State& state) {
  Communicator& replicas = stage_.groups().replicas;
  const std::vector<at::Tensor> gradients = gradients_of(unit);
  const at::Tensor whole = flat(gradients);
  const at::Tensor sum = options_.sharded ? replicas.reduce_scatter(whole) : replicas.all_reduce(whole);
  const at::Tensor gradient = sum.to(at::kFloat) / static_cast<double>(replicas.size());
  state.mean.lerp_(gradient, 1 - kBeta1);
  state.square.lerp_(gradient.square(), 1 - kBeta2);
  const double bias1 = 1 - std::pow(kBeta1, steps_), bias2 = 1 - std::pow(kBeta2, steps_);
  state.weights.addcdiv_(state.mean, (state.square / bias2).sqrt_().add_(kEpsilon), -options_.learning_rate / bias1);
  const at::Tensor updated = state.weights.to(stage_.model().dtype);
  copy_parts(options_.sharded ? replicas.all_gather(updated) : updated, unit);
  for (const at::Tensor& tensor : gradients) tensor.zero_();
}

void MeshOptimizer::step() {
  const at::NoGradGuard no_grad;
  ++steps_;
  sum_gradients_seen_in_parts();
  for (size_t i = 0; i < states_.size(); ++i) update(stage_.units()[i], states_[i]);
}

}  // namespace gpt
