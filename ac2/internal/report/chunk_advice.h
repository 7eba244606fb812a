// What an error about memory says of an op that is too large by itself, and that could run a few rows at a time.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <string>

#include "ac2/internal/libtorch/out_of_memory.h"

namespace ac2::internal {

// Of matrix products, convolutions and softmax, whose results are the largest of most models: a sentence that names
// in_chunks() and a number of chunks. `asked` is what the op asked for, and `room_on_cpu` what the machine has left, in
// bytes; kNotKnown if nobody can say. On accelerators, which do not say, the number is 2. Empty for all other ops, and
// for those of one row.
inline constexpr int64_t kNotKnown = -1;
std::string chunk_advice(const FailedCall& call, int64_t asked, int64_t room_on_cpu);

}  // namespace ac2::internal
