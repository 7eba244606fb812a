// A sentence of an error about memory: an op that is too large by itself could run a few rows at a time.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ac2/internal/libtorch/out_of_memory.h"

namespace ac2::internal {

// The sentence names in_chunks() and a number of chunks. Matrix products, convolutions, softmax and the ops by elements
// that come next to them get one, because theirs are the largest results of most models; it is empty for all other
// ops, for those of one row, and for tensors of one dimension, which have no rows. `asked` is how many bytes the op
// asked for. On accelerators, which do not say what they have left, the number is 2.
std::string chunk_advice(const FailedCall& call, int64_t asked);

// The same words for others. `then` goes before the bytes: "it would ask for ".
std::string chunk_sentence(int64_t chunks, const char* then, int64_t bytes);
// A matrix product or a convolution, "aten::mm" or "aten::linear.out": of its first argument, or the second of addmm
// and baddbmm, each row makes a row of the result.
bool is_product_by_rows(std::string_view op);

}  // namespace ac2::internal
