// Fits a polynomial of degree 4, in the form of PyTorch's example cpp/regression. Knows nothing of ac2.
//
//   regression
//
// Prints the loss of each batch to the last bit, and what was learned.
#include <torch/torch.h>

#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

namespace {

constexpr int64_t kDegree = 4;

// [x, x^2, x^3, x^4] for each x.
torch::Tensor make_features(torch::Tensor x) {
  x = x.unsqueeze(1);
  std::vector<torch::Tensor> powers;
  for (int64_t i = 1; i <= kDegree; ++i) {
    powers.push_back(x.pow(i));
  }
  return torch::cat(powers, 1);
}

std::pair<torch::Tensor, torch::Tensor> get_batch(const torch::Tensor& weight, const torch::Tensor& bias,
                                                  int64_t batch_size) {
  const torch::Tensor x = make_features(torch::randn({batch_size}));
  return {x, x.mm(weight) + bias.item()};
}

void print_polynomial(const char* name, const torch::Tensor& weight, const torch::Tensor& bias) {
  std::printf("%s: y = %a", name, bias.item<float>());
  for (int64_t i = 0; i < kDegree; ++i) {
    std::printf(" + %a x^%d", weight[i].item<float>(), static_cast<int>(i) + 1);
  }
  std::printf("\n");
}

}  // namespace

int main() {
  torch::manual_seed(0);
  const torch::Tensor target_weight = torch::randn({kDegree, 1}) * 5;
  const torch::Tensor target_bias = torch::randn({1}) * 5;
  torch::nn::Linear fc(kDegree, 1);
  torch::optim::SGD optimizer(fc->parameters(), 0.1);
  for (int batch = 0; batch < 200; ++batch) {
    const auto [x, y] = get_batch(target_weight, target_bias, 32);
    optimizer.zero_grad();
    const torch::Tensor loss = torch::smooth_l1_loss(fc(x), y);
    loss.backward();
    optimizer.step();
    std::printf("batch %d: loss %a\n", batch, loss.item<float>());
  }
  print_polynomial("learned", fc->weight.view({-1}), fc->bias);
  print_polynomial("actual", target_weight.view({-1}), target_bias);
}
