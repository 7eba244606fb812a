#include "examples/encoder_wrapper.h"

#include <torch/torch.h>

#include "ac2/ac2.h"
#include "policies/policies.h"

namespace example {
namespace {

using torch::nn::Sequential;

Sequential block(int64_t in, int64_t out) {
  return Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1)), torch::nn::BatchNorm2d(out),
                    torch::nn::ReLU(torch::nn::ReLUOptions(true)), torch::nn::Dropout(0.1));
}

// `push(encoder, block)` adds a block, wrapped or not.
template <class Push>
Variant make(const std::string& name, int64_t channels, const at::Tensor& x, const Push& push) {
  torch::manual_seed(0);
  Sequential encoder;
  push(encoder, block(3, channels));
  for (int i = 0; i < 3; ++i) push(encoder, block(channels, channels));
  return {name, encoder.ptr(), [encoder, x]() mutable { return encoder->forward(x).square().mean(); }};
}

}  // namespace

std::vector<Variant> encoder_wrapper(bool small) {
  const int64_t channels = small ? 4 : 32, batch = small ? 2 : 16, side = small ? 6 : 32;
  torch::manual_seed(1);
  const at::Tensor x = torch::randn({batch, 3, side, side});
  ac2::CheckpointOptions offload;
  offload.offload_inputs = true;  // on the CPU they stay where they are
  return {
      // A Sequential cannot hold a Sequential; a checkpointed one it can, and switched off it is as if plain.
      make("none", channels, x,
           [](Sequential& encoder, const Sequential& plain) {
             auto wrapped = ac2::checkpoint_wrapper(plain);
             wrapped->checkpointing().set_on(false);
             encoder->push_back(wrapped);
           }),
      make("wrapped", channels, x,
           [](Sequential& encoder, const Sequential& plain) { encoder->push_back(ac2::checkpoint_wrapper(plain)); }),
      make("wrapped, products saved", channels, x,
           [](Sequential& encoder, const Sequential& plain) {
             encoder->push_back(ac2::checkpoint_wrapper(plain, ac2::policies::save_compute_intensive()));
           }),
      make("wrapped, inputs offloaded", channels, x,
           [&](Sequential& encoder, const Sequential& plain) {
             encoder->push_back(ac2::checkpoint_wrapper(plain, "recompute_all", offload));
           }),
  };
}

}  // namespace example
