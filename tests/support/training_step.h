// A small model and its training step: forward in blocks, a loss, a backward, an optimizer, and ops outside of regions.
// The model of tests that let memory run out.
//
//   TrainingStep step(at::kCPU);
//   step.run([&](const auto& forward) { const PolicyScope scope("recompute_all"); forward(); });
//   const Tensors state = step.state();
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace ac2::test {

class TrainingStep {
 public:
  struct Sizes {
    int64_t layers = 3;
    int64_t batch = 192;
    int64_t dim = 32;
  };

  TrainingStep(c10::Device device, Sizes sizes) : sizes_(sizes) {
    input_ = by_formula({sizes.batch, sizes.dim}, 1).to(device);
    for (int64_t i = 0; i < sizes.layers; ++i) {
      const auto seed = static_cast<double>(4 * i);
      add(by_formula({2 * sizes.dim, sizes.dim}, seed + 2).div_(6), device);
      add(by_formula({sizes.dim, 2 * sizes.dim}, seed + 3).div_(9), device);
    }
    torch::optim::AdamOptions options(1e-2);
    optimizer_ = std::make_unique<torch::optim::Adam>(parameters_, options);
  }
  explicit TrainingStep(c10::Device device) : TrainingStep(device, Sizes()) {}

  // `around` calls what it is given, in a region or in none, once for the whole forward.
  void run(const std::function<void(const std::function<void()>& forward)>& around) {
    at::Tensor loss;
    around([&] { loss = forward(); });
    optimizer_->zero_grad();
    const at::Tensor noise = (input_ * 2).exp();  // outside of the region
    loss.backward();
    last_loss_ = loss.detach() + noise.sum() * 0;
    loss = at::Tensor();
    optimizer_->step();
  }

  // On the CPU: the parameters, their gradients, and the loss.
  std::vector<at::Tensor> state() const {
    std::vector<at::Tensor> state = {last_loss_.cpu()};
    for (const at::Tensor& parameter : parameters_) {
      state.push_back(parameter.detach().cpu());
      state.push_back(parameter.grad().cpu());
    }
    return state;
  }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

  // Numbers between -1 and 1, the same on each device.
  static at::Tensor by_formula(at::IntArrayRef sizes, double seed) {
    const int64_t count = c10::multiply_integers(sizes);
    const at::Tensor i = at::arange(count, at::kDouble);
    return (i * i * 0.37 + seed).sin().to(at::kFloat).reshape(sizes);
  }

 private:
  void add(const at::Tensor& parameter, c10::Device device) {
    parameters_.push_back(parameter.to(device).detach().requires_grad_());
  }

  at::Tensor forward() const {
    at::Tensor x = input_;
    for (int64_t i = 0; i < sizes_.layers; ++i) {
      const at::Tensor normed = at::layer_norm(x, {sizes_.dim});
      at::Tensor y = at::gelu(at::linear(normed, parameters_[2 * i]));
      y = (y * y.sigmoid()).tanh();
      x = x + at::linear(y, parameters_[2 * i + 1]);
    }
    return (x * x).mean();
  }

  Sizes sizes_;
  at::Tensor input_;
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<torch::optim::Adam> optimizer_;
  at::Tensor last_loss_;
};

}  // namespace ac2::test
