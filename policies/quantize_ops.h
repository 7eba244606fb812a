// Saves the results of the listed ops in 8, 4 or 1 bit a number, recomputes everything else.
//
//   const ac2::Policy policy = ac2::policies::quantize_ops({"aten::gelu", "aten::native_layer_norm"}, 8);
//   ...
//   ac2::PolicyScope scope(policy);
//
// Gradients change: docs/quantisation.md has the bound. What forward computes does not.
//
//   bits | a floating-point result is kept as                                               | comes back
//   8, 4 | codes, and the least and greatest number of each block of 256; rounded at random | close
//   1    | where relu or relu_ made it: which numbers are positive                          | exact for ReLU's gradient
//   any  | one bit, if it has two values, as a dropout mask {0, 1/(1-p)} has (on the CPU)   | exact, to the bit
//
// Bool results (comparisons, masks) take one bit and are exact under any `bits`. Integer, complex and all other results
// are kept as exact copies, as is what 1 bit cannot keep. In a block with a NaN, an infinity, or a range that no float
// holds, every number is kept as it is.
// With 1 bit, a result of relu that something else than ReLU's gradient needs (the next product) is a c10::Error in
// backward: list relu only where nothing does.
//
// Ops: SaveWithHooks (a MUST) for the listed ones, PREFER_RECOMPUTE for the others. Names as in policies/listed_ops.h.
// Throws c10::Error for bits other than 8, 4 and 1, and for a name that no operator has. Works on the CPU, on CUDA
// devices if ac2 was built for CUDA, with the same codes, and on the meta device for plans; on any other device 8 and 4
// bits are an error where the first result is to be packed, and what 1 bit would keep is kept as an exact copy. On a
// CUDA device packing in 8 or 4 bits waits for it, to know whether there are blocks without codes, and is an error
// while a graph is captured; of floating-point results nobody looks whether they have two values, and in codes those
// are exact too.
//
// Rounding draws from numbers of its own: the program's generators are never touched. They follow from the seed, from
// how many regions this policy and its copies had entered before, and from the order in the region: the same program,
// from the making of the policy on, has the same gradients, on any number of LibTorch's threads. Regions that several
// threads open at once are counted in the order in which they happen to open.
// Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ac2/policy.h"

namespace ac2::policies {

struct QuantizeOptions {
  uint64_t seed = 0;
};

Policy quantize_ops(const std::vector<std::string>& ops, int64_t bits, QuantizeOptions options = {});

}  // namespace ac2::policies
