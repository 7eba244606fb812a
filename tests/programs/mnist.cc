// Trains and tests a network of convolutions on images that are drawn, in the form of PyTorch's example cpp/mnist: a
// dataset, data loaders with workers, dropout, SGD. Knows nothing of ac2.
//
//   mnist MODEL.pt 64   # batches of 64 images
//
// Prints losses to the last bit, and saves the model. Ends with code 1 if the file cannot be written.
#include <torch/torch.h>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <utility>

namespace {

constexpr size_t kWorkers = 2;
constexpr size_t kTestImages = 50;

// An image of a brighter square, whose place says which digit it is.
class Images : public torch::data::datasets::Dataset<Images> {
 public:
  Images(int64_t seed, size_t size)
      : labels_(torch::arange(static_cast<int64_t>(size)) % 10),
        images_(torch::rand({static_cast<int64_t>(size), 1, 28, 28}, at::make_generator<at::CPUGeneratorImpl>(seed))) {
    for (int64_t i = 0; i < static_cast<int64_t>(size); ++i) {
      images_[i].narrow(1, i % 10 * 2, 8).narrow(2, i % 10 * 2, 8).add_(1);
    }
  }

  torch::data::Example<> get(size_t index) override {
    return {images_[static_cast<int64_t>(index)], labels_[static_cast<int64_t>(index)]};
  }
  torch::optional<size_t> size() const override { return static_cast<size_t>(labels_.size(0)); }

 private:
  torch::Tensor labels_;
  torch::Tensor images_;
};

struct NetImpl : torch::nn::Module {
  NetImpl()
      : conv1(torch::nn::Conv2dOptions(1, 10, 5)),
        conv2(torch::nn::Conv2dOptions(10, 20, 5)),
        fc1(320, 50),
        fc2(50, 10) {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("conv2_drop", conv2_drop);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::max_pool2d(conv1->forward(x), 2));
    x = torch::relu(torch::max_pool2d(conv2_drop->forward(conv2->forward(x)), 2));
    x = x.view({-1, 320});
    x = torch::relu(fc1->forward(x));
    x = torch::dropout(x, 0.5, is_training());
    x = fc2->forward(x);
    return torch::log_softmax(x, 1);
  }

  torch::nn::Conv2d conv1;
  torch::nn::Conv2d conv2;
  torch::nn::Dropout2d conv2_drop;
  torch::nn::Linear fc1;
  torch::nn::Linear fc2;
};
TORCH_MODULE(Net);

template <class DataLoader>
void train(int epoch, Net& model, DataLoader& loader, torch::optim::Optimizer& optimizer) {
  model->train();
  for (auto& batch : loader) {
    optimizer.zero_grad();
    const torch::Tensor loss = torch::nll_loss(model(batch.data), batch.target);
    TORCH_CHECK(!std::isnan(loss.item<float>()));
    loss.backward();
    optimizer.step();
    std::printf("epoch %d: loss %a\n", epoch, loss.item<float>());
  }
}

template <class DataLoader>
void test(Net& model, DataLoader& loader) {
  const torch::NoGradGuard no_grad;
  model->eval();
  double loss = 0;
  int64_t correct = 0;
  for (const auto& batch : loader) {
    const torch::Tensor output = model(batch.data);
    loss += torch::nll_loss(output, batch.target, {}, at::Reduction::Sum).template item<float>();
    correct += output.argmax(1).eq(batch.target).sum().template item<int64_t>();
  }
  std::printf("test: loss %a, %d of %d correct\n", loss / kTestImages, static_cast<int>(correct),
              static_cast<int>(kTestImages));
}

void run(const char* file, size_t batch_size) {
  torch::manual_seed(1);
  Net model;
  auto train_loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      Images(1, 4 * batch_size)
          .map(torch::data::transforms::Normalize<>(0.5, 0.3))
          .map(torch::data::transforms::Stack<>()),
      torch::data::DataLoaderOptions(batch_size).workers(kWorkers));
  auto test_loader = torch::data::make_data_loader(Images(2, kTestImages)
                                                       .map(torch::data::transforms::Normalize<>(0.5, 0.3))
                                                       .map(torch::data::transforms::Stack<>()),
                                                   torch::data::DataLoaderOptions(25));
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.01).momentum(0.5));
  for (int epoch = 1; epoch <= 3; ++epoch) {
    train(epoch, model, *train_loader, optimizer);
    test(model, *test_loader);
  }
  torch::save(model, file);
}

}  // namespace

int main(int, char** arguments) {
  try {
    run(arguments[1], std::strtoul(arguments[2], nullptr, 10));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mnist: %s\n", error.what());
    return 1;
  }
}
