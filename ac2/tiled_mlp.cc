#include "ac2/tiled_mlp.h"

#include <c10/util/Exception.h>

#include <vector>

#include "ac2/in_chunks.h"

namespace ac2 {

namespace {

constexpr int64_t kLeastTokens = 64;  // in a chunk

}  // namespace

at::Tensor tiled_mlp(const std::function<at::Tensor(const at::Tensor& tokens)>& mlp, const at::Tensor& hidden,
                     std::optional<int64_t> chunks) {
  TORCH_CHECK(mlp != nullptr, "tiled_mlp was given no function.");
  TORCH_CHECK(hidden.defined() && hidden.dim() >= 1, "tiled_mlp: hidden ",
              hidden.defined() ? c10::str("is ", hidden.sizes()) : "is undefined", "; expected [..., features].");
  TORCH_CHECK(!chunks || *chunks > 0, "tiled_mlp: chunks must be a positive number, but is ", *chunks, ".");
  const at::Tensor tokens = hidden.dim() == 1 ? hidden.unsqueeze(0) : hidden.flatten(0, -2);
  const int64_t count = chunks.value_or(internal::chunks_for(tokens.size(0), hidden.size(-1), kLeastTokens));
  const at::Tensor result = in_chunks(
      [&](const at::Tensor& slice) {
        at::Tensor of_slice = mlp(slice);
        TORCH_CHECK(of_slice.defined() && of_slice.dim() > 0 && of_slice.size(0) == slice.size(0),
                    "tiled_mlp: the function made ",
                    of_slice.defined() ? c10::str("a tensor of ", of_slice.sizes()) : "an undefined tensor", " of ",
                    slice.sizes(), "; expected one whose first dimension is the tokens.");
        return of_slice;
      },
      tokens, {.chunks = count});
  std::vector<int64_t> sizes = hidden.sizes().slice(0, hidden.dim() - 1).vec();
  sizes.insert(sizes.end(), result.sizes().begin() + 1, result.sizes().end());
  return result.reshape(sizes);
}

}  // namespace ac2
