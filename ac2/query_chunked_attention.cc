#include "ac2/query_chunked_attention.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <vector>

#include "ac2/in_chunks.h"

namespace ac2 {

namespace {

constexpr int64_t kLeastQueries = 256;  // in a chunk

void check_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const QueryChunkOptions& options) {
  const auto check_tensor = [](const at::Tensor& tensor, const char* name) {
    TORCH_CHECK(tensor.defined() && tensor.dim() >= 2, "query_chunked_attention: ", name,
                tensor.defined() ? c10::str(" is ", tensor.sizes()) : " is undefined",
                "; expected [..., positions, features].");
  };
  check_tensor(query, "query");
  check_tensor(key, "key");
  check_tensor(value, "value");
  TORCH_CHECK(key.size(-2) == value.size(-2), "query_chunked_attention: value has ", value.size(-2),
              " positions, and key has ", key.size(-2), ". Give as many of both.");
  TORCH_CHECK(!options.chunks || *options.chunks > 0,
              "query_chunked_attention: chunks must be a positive number, but is ", *options.chunks, ".");
  if (options.attn_mask.defined()) {
    TORCH_CHECK(!options.is_causal,
                "query_chunked_attention was given both is_causal and attn_mask. Give a mask that is causal itself.");
    TORCH_CHECK(options.attn_mask.dim() >= 2 &&
                    (options.attn_mask.size(-2) == 1 || options.attn_mask.size(-2) == query.size(-2)),
                "query_chunked_attention: attn_mask is ", options.attn_mask.sizes(), "; expected [..., ",
                query.size(-2), " or 1, ", key.size(-2), "], for a query of ", query.sizes(), ".");
  }
}

at::Tensor up_to(const at::Tensor& positions, int64_t count) {
  return count < positions.size(-2) ? positions.narrow(-2, 0, count) : positions;
}

}  // namespace

at::Tensor query_chunked_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                   const QueryChunkOptions& options) {
  check_attention(query, key, value, options);
  const int64_t queries = query.size(-2), keys = key.size(-2);
  const bool cuts_mask = options.attn_mask.defined() && options.attn_mask.size(-2) == queries;
  int64_t first = 0;  // the chunks come in order, each once
  const auto of_chunk = [&](const std::vector<at::Tensor>& slices) {
    const int64_t count = slices[0].size(-2), last = first + count;
    at::Tensor mask = cuts_mask ? slices[1] : options.attn_mask;
    int64_t seen = keys;
    if (options.is_causal) {
      seen = std::min(last, keys);
      mask = at::ones({count, seen}, query.options().dtype(at::kBool)).tril(first);
    }
    first = last;
    return at::scaled_dot_product_attention(slices[0], up_to(key, seen), up_to(value, seen),
                                            mask.defined() ? std::optional<at::Tensor>(mask) : std::nullopt,
                                            options.dropout_p,
                                            /*is_causal=*/false, options.scale, options.enable_gqa);
  };
  std::vector<at::Tensor> cut = {query};
  if (cuts_mask) {
    cut.push_back(options.attn_mask);
  }
  const int64_t chunks = options.chunks.value_or(internal::chunks_for(queries, query.size(-1), kLeastQueries));
  return in_chunks(of_chunk, cut, {.dim = -2, .chunks = chunks});
}

}  // namespace ac2
