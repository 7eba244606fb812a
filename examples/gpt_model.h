// A small GPT whose blocks run each in a region of their own.
//
//   gpt::Gpt model(gpt::GptOptions{.vocabulary = 96});
//   at::Tensor logits = model->forward(tokens, ac2::policies::save_compute_intensive());
//   at::Tensor plain = model->forward(tokens, std::nullopt);   // no regions
//
// Whether and how to checkpoint is an argument of forward(), not a property of the model: the same weights can then be
// compared under any policy, in the same process.
//
// Threads: as torch::nn::Module, one thread at a time.
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "examples/checkpointing.h"

namespace gpt {

struct GptOptions {
  int64_t vocabulary = 128;
  int64_t context = 128;  // tokens seen at once
  int64_t layers = 4;
  int64_t dim = 128;
  int64_t heads = 4;
  double dropout = 0.1;
};

// Throws c10::Error for sizes that make no model.
void check_options(const GptOptions& options);

// x + dropout(attention(norm(x))), then x + dropout(mlp(norm(x))).
class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(const GptOptions& options);
  at::Tensor forward(const at::Tensor& x);

 private:
  at::Tensor attend(const at::Tensor& x);

  int64_t heads_;
  double dropout_;
  torch::nn::LayerNorm norm1_, norm2_;
  torch::nn::Linear qkv_, projection_, expand_, contract_;
};
TORCH_MODULE(Block);

// The blocks alone, from hidden states to hidden states: what the benchmark times.
class BlocksImpl : public torch::nn::Module {
 public:
  explicit BlocksImpl(const GptOptions& options);
  // One region per block unless `checkpointing` is none.
  at::Tensor forward(at::Tensor x, const Checkpointing& checkpointing);

 private:
  torch::nn::ModuleList blocks_;
};
TORCH_MODULE(Blocks);

class GptImpl : public torch::nn::Module {
 public:
  // Throws as check_options().
  explicit GptImpl(const GptOptions& options);
  // Logits [batch, time, vocabulary] for int64 tokens [batch, time], time <= context.
  at::Tensor forward(const at::Tensor& tokens, const Checkpointing& checkpointing);
  const GptOptions& options() const { return options_; }

 private:
  GptOptions options_;
  torch::nn::Embedding token_embedding_;  // its weight is the output projection too
  torch::nn::Embedding position_embedding_;
  Blocks blocks_;
  torch::nn::LayerNorm norm_;
};
TORCH_MODULE(Gpt);

}  // namespace gpt
