#include "examples/gpt_model.h"

#include <cmath>
#include <string>

namespace gpt {
namespace F = torch::nn::functional;

namespace {

// 0.02 for the 768 channels of the smallest GPT-2, and more for fewer.
double initial_std(const GptOptions& options) {
  return 0.55 / std::sqrt(static_cast<double>(options.dim));
}

void check_positive(const char* name, int64_t value) {
  TORCH_CHECK(value > 0, name, " is ", value, "; it must be at least 1.");
}

}  // namespace

void check_options(const GptOptions& options) {
  check_positive("vocabulary", options.vocabulary);
  check_positive("context", options.context);
  check_positive("layers", options.layers);
  check_positive("dim", options.dim);
  check_positive("heads", options.heads);
  TORCH_CHECK(options.dim % options.heads == 0, "dim ", options.dim, " is not divisible by heads ", options.heads,
              ": every head gets dim / heads channels. Use a dim that is a multiple of heads, such as ",
              (options.dim / options.heads + 1) * options.heads, ".");
  TORCH_CHECK(options.dropout >= 0 && options.dropout < 1, "dropout is ", options.dropout,
              "; it is the share of values set to zero, so it must be at least 0 and less than 1.");
}

BlockImpl::BlockImpl(const GptOptions& options)
    : heads_(options.heads),
      dropout_(options.dropout),
      norm1_(torch::nn::LayerNormOptions({options.dim})),
      norm2_(torch::nn::LayerNormOptions({options.dim})),
      qkv_(options.dim, 3 * options.dim),
      projection_(options.dim, options.dim),
      expand_(options.dim, 4 * options.dim),
      contract_(4 * options.dim, options.dim) {
  register_module("norm1", norm1_);
  register_module("qkv", qkv_);
  register_module("projection", projection_);
  register_module("norm2", norm2_);
  register_module("expand", expand_);
  register_module("contract", contract_);

  const double std = initial_std(options);
  for (const auto& linear : {qkv_, projection_, expand_, contract_}) {
    torch::nn::init::normal_(linear->weight, 0, std);
    torch::nn::init::zeros_(linear->bias);
  }
  // As GPT-2: the sum over the residual branches keeps its variance whatever the depth.
  const double residual_std = std / std::sqrt(2.0 * static_cast<double>(options.layers));
  torch::nn::init::normal_(projection_->weight, 0, residual_std);
  torch::nn::init::normal_(contract_->weight, 0, residual_std);
}

at::Tensor BlockImpl::attend(const at::Tensor& x) {
  const int64_t batch = x.size(0), time = x.size(1), dim = x.size(2);
  // [batch, time, 3, heads, channels] -> three of [batch, heads, time, channels], all views.
  const auto qkv = qkv_->forward(x).view({batch, time, 3, heads_, dim / heads_}).permute({2, 0, 3, 1, 4}).unbind(0);
  // No dropout in here: with it, LibTorch's CPU attention falls back to one that builds [time, time] matrices.
  const at::Tensor mixed = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], /*attn_mask=*/{},
                                                            /*dropout_p=*/0.0, /*is_causal=*/true);
  return projection_->forward(mixed.transpose(1, 2).reshape({batch, time, dim}));
}

at::Tensor BlockImpl::forward(const at::Tensor& x) {
  const auto dropout = [this](const at::Tensor& t) {
    // No op at all for 0: LibTorch's dropout would copy.
    return dropout_ > 0 ? at::dropout(t, dropout_, is_training()) : t;
  };
  const at::Tensor y = x + dropout(attend(norm1_->forward(x)));
  return y + dropout(contract_->forward(at::gelu(expand_->forward(norm2_->forward(y)))));
}

BlocksImpl::BlocksImpl(const GptOptions& options) {
  register_module("blocks", blocks_);
  for (int64_t i = 0; i < options.layers; ++i) blocks_->push_back(Block(options));
}

at::Tensor BlocksImpl::forward(at::Tensor x, const Checkpointing& checkpointing) {
  // All blocks in one: the inputs of blocks are then results of the region, which the budget may drop as well.
  std::optional<ac2::PolicyScope> whole;
  const ac2::ScopeOptions options{.memory_budget = checkpointing.budget, .timeline = checkpointing.traces != nullptr};
  const bool by_block = checkpointing.span == RegionSpan::kBlock;
  if (checkpointing.budget && by_block) whole.emplace(options);
  for (const auto& module : *blocks_) {
    auto& block = *module->as<BlockImpl>();
    x = by_block ? checkpointed(checkpointing, [&] { return block.forward(x); }) : block.forward(x);
  }
  return x;
}

GptImpl::GptImpl(const GptOptions& options)
    : options_((check_options(options), options)),
      token_embedding_(options.vocabulary, options.dim),
      position_embedding_(options.context, options.dim),
      blocks_(options),
      norm_(torch::nn::LayerNormOptions({options.dim})) {
  register_module("token_embedding", token_embedding_);
  register_module("position_embedding", position_embedding_);
  register_module("blocks", blocks_);
  register_module("norm", norm_);
  torch::nn::init::normal_(token_embedding_->weight, 0, initial_std(options));
  torch::nn::init::normal_(position_embedding_->weight, 0, initial_std(options));
}

at::Tensor GptImpl::forward(const at::Tensor& tokens, const Checkpointing& checkpointing) {
  const int64_t time = tokens.size(1);
  TORCH_CHECK(time <= options_.context, "GPT got ", time, " tokens, and its context is ", options_.context,
              ". Pass the last ", options_.context, " tokens.");
  at::Tensor x = token_embedding_->forward(tokens) + position_embedding_->weight.slice(0, 0, time);
  if (options_.dropout > 0) x = at::dropout(x, options_.dropout, is_training());
  x = blocks_->forward(x, checkpointing);
  return F::linear(norm_->forward(x), token_embedding_->weight);
}

}  // namespace gpt
