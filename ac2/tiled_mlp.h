// An MLP over the tokens of a long sequence, of whose inside a few tokens are there at a time.
//
//   at::Tensor y = ac2::tiled_mlp([&](const at::Tensor& x) { return mlp->forward(x); }, hidden);
//
// This is in_chunks() over tokens, by the name that it has elsewhere: "tiled MLP" in DeepSpeed (ALST), axolotl and
// Liger, with their number of chunks. Between forward and backward nothing of the MLP's inside is held. Gradients of
// weights are sums over chunks. What in_chunks.h says of regions and of bits holds here too.
//
// Method: S. Bekman et al., "Arctic Long Sequence Training: Scalable And Efficient Training For Multi-Million Token
// Sequences", 2025.
//
// Threads: as PolicyScope.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>

namespace ac2 {

// `hidden` is [..., features]; `mlp` takes [tokens, features], and returns a tensor whose first dimension is the
// tokens. Returns [..., what mlp makes of a token]. Without `chunks` each has as many tokens as a token has features,
// at least 64. Throws c10::Error for other shapes, and what `mlp` throws.
at::Tensor tiled_mlp(const std::function<at::Tensor(const at::Tensor& tokens)>& mlp, const at::Tensor& hidden,
                     std::optional<int64_t> chunks = std::nullopt);

}  // namespace ac2
