// Trains a generator and a discriminator against each other on images that are drawn, in the form of PyTorch's example
// cpp/dcgan: transposed convolutions, batch normalisation, a detached input, two optimizers, checkpoints. Knows nothing
// of ac2.
//
//   dcgan FOLDER
//
// Prints both losses of each batch to the last bit, and saves the networks and samples. The example saves its
// optimizers too, whose files have addresses in them.
#include <torch/torch.h>

#include <cstdint>
#include <cstdio>
#include <string>

namespace {

constexpr int64_t kNoise = 32;
constexpr int64_t kBatch = 16;
constexpr int kEpochs = 2;

struct GeneratorImpl : torch::nn::Module {
  explicit GeneratorImpl(int64_t noise)
      : conv1(torch::nn::ConvTranspose2dOptions(noise, 64, 4).bias(false)),
        norm1(64),
        conv2(torch::nn::ConvTranspose2dOptions(64, 32, 3).stride(2).padding(1).bias(false)),
        norm2(32),
        conv3(torch::nn::ConvTranspose2dOptions(32, 16, 4).stride(2).padding(1).bias(false)),
        norm3(16),
        conv4(torch::nn::ConvTranspose2dOptions(16, 1, 4).stride(2).padding(1).bias(false)) {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("conv3", conv3);
    register_module("conv4", conv4);
    register_module("norm1", norm1);
    register_module("norm2", norm2);
    register_module("norm3", norm3);
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(norm1(conv1(x)));
    x = torch::relu(norm2(conv2(x)));
    x = torch::relu(norm3(conv3(x)));
    return torch::tanh(conv4(x));
  }

  torch::nn::ConvTranspose2d conv1;
  torch::nn::BatchNorm2d norm1;
  torch::nn::ConvTranspose2d conv2;
  torch::nn::BatchNorm2d norm2;
  torch::nn::ConvTranspose2d conv3;
  torch::nn::BatchNorm2d norm3;
  torch::nn::ConvTranspose2d conv4;
};
TORCH_MODULE(Generator);

torch::nn::Sequential make_discriminator() {
  using torch::nn::Conv2dOptions;
  const auto leaky = torch::nn::LeakyReLUOptions().negative_slope(0.2);
  return torch::nn::Sequential(
      torch::nn::Conv2d(Conv2dOptions(1, 16, 4).stride(2).padding(1).bias(false)), torch::nn::LeakyReLU(leaky),
      torch::nn::Conv2d(Conv2dOptions(16, 32, 4).stride(2).padding(1).bias(false)), torch::nn::BatchNorm2d(32),
      torch::nn::LeakyReLU(leaky), torch::nn::Conv2d(Conv2dOptions(32, 64, 4).stride(2).padding(1).bias(false)),
      torch::nn::BatchNorm2d(64), torch::nn::LeakyReLU(leaky),
      torch::nn::Conv2d(Conv2dOptions(64, 1, 3).stride(1).padding(0).bias(false)), torch::nn::Sigmoid());
}

}  // namespace

int main(int, char** arguments) {
  const std::string folder = arguments[1];
  torch::manual_seed(0);
  Generator generator(kNoise);
  torch::nn::Sequential discriminator = make_discriminator();
  auto dataset = torch::data::datasets::TensorDataset(torch::randn({3 * kBatch + 5, 1, 28, 28}).clamp_(-1, 1))
                     .map(torch::data::transforms::Stack<torch::data::TensorExample>());
  auto loader = torch::data::make_data_loader(std::move(dataset), torch::data::DataLoaderOptions(kBatch).workers(2));
  torch::optim::Adam generator_optimizer(generator->parameters(), torch::optim::AdamOptions(2e-4).betas({0.5, 0.999}));
  torch::optim::Adam discriminator_optimizer(discriminator->parameters(),
                                             torch::optim::AdamOptions(2e-4).betas({0.5, 0.999}));
  for (int epoch = 1; epoch <= kEpochs; ++epoch) {
    int index = 0;
    for (const auto& batch : *loader) {
      // The discriminator, with images that are real.
      discriminator->zero_grad();
      const torch::Tensor real = batch.data;
      const torch::Tensor real_labels = torch::empty(real.size(0)).uniform_(0.8, 1.0);
      const torch::Tensor real_output = discriminator->forward(real).reshape(real_labels.sizes());
      const torch::Tensor real_loss = torch::binary_cross_entropy(real_output, real_labels);
      real_loss.backward();

      // And with such that are not.
      const torch::Tensor fake = generator->forward(torch::randn({real.size(0), kNoise, 1, 1}));
      const torch::Tensor fake_labels = torch::zeros(real.size(0));
      const torch::Tensor fake_output = discriminator->forward(fake.detach()).reshape(fake_labels.sizes());
      const torch::Tensor fake_loss = torch::binary_cross_entropy(fake_output, fake_labels);
      fake_loss.backward();
      const torch::Tensor discriminator_loss = real_loss + fake_loss;
      discriminator_optimizer.step();

      // The generator.
      generator->zero_grad();
      const torch::Tensor output = discriminator->forward(fake).reshape(fake_labels.sizes());
      const torch::Tensor generator_loss = torch::binary_cross_entropy(output, torch::ones_like(fake_labels));
      generator_loss.backward();
      generator_optimizer.step();

      std::printf("[%d/%d][%d] D_loss %a, G_loss %a\n", epoch, kEpochs, ++index, discriminator_loss.item<float>(),
                  generator_loss.item<float>());
    }
  }
  torch::save(generator, folder + "/generator.pt");
  torch::save(discriminator, folder + "/discriminator.pt");
  torch::save(generator->forward(torch::randn({4, kNoise, 1, 1})), folder + "/samples.pt");
}
