#include "examples/two_segment_mlp.h"

#include <torch/torch.h>

#include "ac2/ac2.h"

namespace example {
namespace {

// ---------------------------------------------------------------------------------------------------------------------
// A program writes Checkpointed<Sequential> where it had Sequential.
struct MlpImpl : torch::nn::Module {
  explicit MlpImpl(int64_t dim)
      : first(register_module(
            "first", ac2::Checkpointed<torch::nn::Sequential>(torch::nn::Linear(dim, dim), torch::nn::ReLU(),
                                                              torch::nn::Linear(dim, dim), torch::nn::Tanh()))),
        second(register_module(
            "second", ac2::Checkpointed<torch::nn::Sequential>(torch::nn::Linear(dim, dim), torch::nn::Sigmoid(),
                                                               torch::nn::Linear(dim, 10)))) {}
  at::Tensor forward(const at::Tensor& x) { return second->forward(first->forward(x)); }

  ac2::Checkpointed<torch::nn::Sequential> first, second;
};
TORCH_MODULE(Mlp);
// ---------------------------------------------------------------------------------------------------------------------

Variant make(const std::string& name, bool first, bool second, int64_t dim, const at::Tensor& x, const at::Tensor& y) {
  torch::manual_seed(0);
  Mlp mlp(dim);
  mlp->first->checkpointing().set_on(first);
  mlp->second->checkpointing().set_on(second);
  return {name, mlp.ptr(), [mlp, x, y]() mutable { return torch::nn::functional::cross_entropy(mlp->forward(x), y); }};
}

}  // namespace

std::vector<Variant> two_segment_mlp(bool small) {
  const int64_t dim = small ? 8 : 512, batch = small ? 4 : 2048;
  torch::manual_seed(1);
  const at::Tensor x = torch::randn({batch, dim});
  const at::Tensor y = torch::randint(10, {batch}, torch::kLong);
  return {make("none", false, false, dim, x, y), make("the first segment", true, false, dim, x, y),
          make("both segments", true, true, dim, x, y)};
}

}  // namespace example
