// Attention over a long sequence, a few queries at a time.
//
//   at::Tensor y = ac2::query_chunked_attention(query, key, value, {.is_causal = true});
//   // as at::scaled_dot_product_attention(query, key, value, {}, 0.0, /*is_causal=*/true)
//
// The scores of all queries, [queries, keys] for each head, are never there where the kernel makes them: with a mask
// that has a gradient (a bias of positions), with dropout on the CPU, where no fused kernel takes the sizes or types.
// Fused kernels make none, and then there is nothing to gain but the mask of a causal attention. This is in_chunks()
// over queries; what in_chunks.h says of regions and of bits holds here too. Gradients of keys, values and a mask that
// all queries share are sums over chunks.
//
// The name is after query_chunk_attention() of M. N. Rabe and C. Staats, "Self-attention Does Not Need O(n^2) Memory",
// 2021. "Chunked attention" alone is Llama 4's word for attention within chunks, which is another function.
//
// Threads: as PolicyScope.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace ac2 {

struct QueryChunkOptions {
  at::Tensor attn_mask = {};           // [..., queries or 1, keys], bools or what is added to the scores
  double dropout_p = 0;                // drawn chunk by chunk
  bool is_causal = false;              // query i attends to keys 0 to i; a chunk computes no scores behind its last one
  std::optional<double> scale = {};    // unset: 1 by the root of the features
  bool enable_gqa = false;             // fewer heads of keys and values than of queries
  std::optional<int64_t> chunks = {};  // unset: of as many queries as one has features, at least 256
};

// `query` is [..., queries, features], `key` and `value` [..., keys, features]. Returns [..., queries, features of a
// value]. Throws c10::Error for other shapes, for options out of their range, and what LibTorch's function throws.
at::Tensor query_chunked_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                   const QueryChunkOptions& options = {});

}  // namespace ac2
