// TorchScript in a region: what its interpreter runs, and the graphs that it differentiates by itself.
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/jit.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using TorchScriptTest = CleanTest;

constexpr char kBlock[] = R"(
def block(x, w, b):
    y = torch.tanh(torch.matmul(x, w) + b)
    z = torch.sigmoid(y) * y + torch.relu(x)
    for i in range(3):
        z = torch.cos(z) * y
    return z.exp()
)";

// The interpreter first records types; from the second call on it runs graphs that it has differentiated itself, whose
// backward is one node.
TEST_F(TorchScriptTest, AFunctionBeforeAndAfterTheInterpreterDifferentiatesIt) {
  for (const bool differentiated : {false, true}) {
    SCOPED_TRACE(differentiated);
    const TensorFn fn = [&](const Tensors& in) {
      const auto unit = torch::jit::compile(kBlock);
      const auto call = [&] { return unit->run_method("block", in[0], in[1], in[2]).toTensor(); };
      if (differentiated) call();
      const at::Tensor y = call();
      EXPECT_EQ(y.grad_fn()->name().find("DifferentiableGraph") != std::string::npos, differentiated);
      return Tensors{y};
    };
    const Tensors inputs = {sample({4, 4}), sample({4, 4}), sample({4})};
    expect_same_gradients_and_replays(fn, inputs, 12);
    expect_same_gradients_and_replays(fn, inputs, 0, "must_save_all");
  }
}

TEST_F(TorchScriptTest, WritesInPlaceAndDraws) {
  expect_same_gradients(
      [](const Tensors& in) {
        const auto unit = torch::jit::compile(R"(
def noisy(x):
    y = torch.sin(x)
    z = torch.dropout(torch.exp(y), 0.5, True)
    y.mul_(2.0)
    y[0] = torch.rand_like(y[0])
    return torch.cos(y) * torch.exp(z), z
)");
        Tensors results;
        for (int i = 0; i < 3; ++i) {
          const auto both = unit->run_method("noisy", in[0]).toTuple();
          for (const c10::IValue& one : both->elements()) results.push_back(one.toTensor());
        }
        return results;
      },
      {sample({4, 4})});
}

torch::jit::Module saved_and_loaded(const torch::jit::Module& module) {
  std::stringstream file;
  module.save(file);
  return torch::jit::load(file);
}

torch::jit::Module two_layers() {
  torch::jit::Module module("two_layers");
  module.register_parameter("w", sample({8, 8}), /*is_buffer=*/false);
  module.register_parameter("b", sample({8}), /*is_buffer=*/false);
  module.register_parameter("mean", at::zeros({8}), /*is_buffer=*/true);
  module.register_parameter("variance", at::ones({8}), /*is_buffer=*/true);
  module.define(R"(
def forward(self, x):
    y = torch.linear(x, self.w, self.b)
    y = torch.batch_norm(y, None, None, self.mean, self.variance, True, 0.1, 1e-5, False)
    y = torch.dropout(torch.gelu(y), 0.25, True)
    return torch.linear(y, self.w)
)");
  return module;
}

TEST_F(TorchScriptTest, ALoadedModuleTrainsAsWithoutRegions) {
  const torch::jit::Module original = two_layers();
  const at::Tensor x = constant({16, 8});
  const auto train = [&](const bool in_regions) {
    at::manual_seed(7);
    torch::jit::Module module = saved_and_loaded(original);
    for (int step = 0; step < 4; ++step) {
      const auto forward = [&] { return module.forward({x}).toTensor(); };
      const at::Tensor y = in_regions ? apply_ac_policy_fn(forward, "recompute_all") : forward();
      y.square().sum().backward();
      const at::NoGradGuard no_grad;
      for (at::Tensor parameter : module.parameters()) {
        parameter.sub_(parameter.grad() * 0.01);
        parameter.mutable_grad().reset();
      }
    }
    Tensors state;
    for (const at::Tensor& parameter : module.parameters()) state.push_back(parameter);
    for (const at::Tensor& buffer : module.buffers()) state.push_back(buffer);
    return state;
  };
  const Tensors expected = train(false);
  expect_same_bits(train(true), expected, "state");
}

}  // namespace
}  // namespace ac2::test
