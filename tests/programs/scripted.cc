// Trains a module of TorchScript that another program has written, in the form of PyTorch's "Loading a TorchScript
// Model in C++". Knows nothing of ac2.
//
//   scripted MODULE.pt TRAINED.pt
//
// Prints losses to the last bit, and saves the module. Ends with code 1 if the module cannot be loaded.
#include <torch/script.h>
#include <torch/torch.h>

#include <cstdio>
#include <vector>

int main(int count, char** arguments) {
  if (count != 3) {
    std::fprintf(stderr, "usage: scripted MODULE.pt TRAINED.pt\n");
    return 2;
  }
  torch::jit::script::Module module;
  try {
    module = torch::jit::load(arguments[1]);
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "error loading the module\n");
    return 1;
  }
  torch::manual_seed(0);
  std::vector<torch::Tensor> parameters;
  for (const torch::Tensor& parameter : module.parameters()) {
    parameters.push_back(parameter);
  }
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.05).momentum(0.9));
  module.train();
  for (int step = 0; step < 8; ++step) {
    const torch::Tensor x = torch::randn({32, 16});
    std::vector<torch::jit::IValue> inputs{x};
    const torch::Tensor output = module.forward(inputs).toTensor();
    const torch::Tensor loss = torch::mse_loss(output, x.sin().sum(1, /*keepdim=*/true));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    std::printf("step %d: loss %a\n", step, loss.item<float>());
  }
  module.save(arguments[2]);
}
