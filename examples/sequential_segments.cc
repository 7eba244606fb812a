#include "examples/sequential_segments.h"

#include <torch/torch.h>

#include <functional>

#include "ac2/ac2.h"

namespace example {
namespace {

using torch::nn::Sequential;

Variant make(const std::string& name, int64_t modules, const at::Tensor& x,
             const std::function<at::Tensor(Sequential, const at::Tensor&)>& forward) {
  torch::manual_seed(0);
  Sequential layers;
  for (int64_t i = 0; i < modules / 2; ++i) {
    layers->push_back(torch::nn::Linear(x.size(1), x.size(1)));
    layers->push_back(torch::nn::GELU());
  }
  return {name, layers.ptr(), [layers, x, forward] { return forward(layers, x).square().mean(); }};
}

}  // namespace

std::vector<Variant> sequential_segments(bool small) {
  const int64_t modules = small ? 12 : 32, dim = small ? 8 : 256, batch = small ? 4 : 2048;
  torch::manual_seed(1);
  const at::Tensor x = torch::randn({batch, dim});
  const auto in_segments = [](int64_t segments) {
    return [segments](Sequential layers, const at::Tensor& input) {
      return ac2::checkpoint_sequential(std::move(layers), segments, input);
    };
  };
  return {
      make("none", modules, x, [](Sequential layers, const at::Tensor& input) { return layers->forward(input); }),
      make("2 segments", modules, x, in_segments(2)),
      make("8 segments", modules, x, in_segments(8)),
      make("chosen: " + std::to_string(ac2::sqrt_segments(modules)) + " segments", modules, x,
           [](Sequential layers, const at::Tensor& input) { return ac2::checkpoint_sequential(layers, input); }),
  };
}

}  // namespace example
