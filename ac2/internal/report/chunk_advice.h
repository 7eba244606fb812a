// A sentence of an error about memory: an op that is too large by itself could run a few rows at a time.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <string>

#include "ac2/internal/libtorch/out_of_memory.h"

namespace ac2::internal {

// The sentence names in_chunks() and a number of chunks. Matrix products, convolutions and softmax get one, because
// theirs are the largest results of most models; it is empty for all other ops, and for those of one row. `asked` is
// how many bytes the op asked for. On accelerators, which do not say what they have left, the number is 2.
std::string chunk_advice(const FailedCall& call, int64_t asked);

}  // namespace ac2::internal
