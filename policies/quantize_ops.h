// Saves the results of the listed ops in 8, 4 or 1 bit a number, recomputes everything else.
//
//   const ac2::Policy policy = ac2::policies::quantize_ops({"aten::gelu", "aten::native_layer_norm"}, 8);
//   ...
//   ac2::PolicyScope scope(policy);
//
// Gradients change, and docs/quantisation.md has the bound. Forward's results do not change.
//
//   bits | a floating-point result is saved as                                              | comes back
//   8, 4 | codes, and the least and greatest number of each block of 256; rounded at random | close
//   1    | where relu or relu_ made it: which numbers are positive                          | exact for ReLU's gradient
//   any  | one bit, if it has two values, as a dropout mask {0, 1/(1-p)} has (on the CPU)   | bitwise identical
//
// Bool results (comparisons, masks) take one bit a number and are exact, whatever `bits` is. Integer, complex and all
// other results are saved as they are, and so are results that 1 bit cannot hold. In a block with a NaN, an
// infinity, or a range that no float holds, every number is saved as it is. With 1 bit, only ReLU's own gradient can
// use a result of relu. If something else needs it, such as the next product, backward throws c10::Error: list relu
// only where nothing else does.
//
// A form (a MUST) for the listed ops, PREFER_RECOMPUTE for all others. Names are as in policies/listed_ops.h. Throws
// c10::Error for bits other than 8, 4 and 1, and for a name that no operator has. For budgets and plans see
// forms::quantized() in ac2/form.h.
//
// Devices: the policy works on the CPU, on the meta device for plans, and, if ac2 was built for CUDA, on CUDA devices
// with the same codes. On any other device the first result that 8 or 4 bits should pack is an error, and what 1 bit
// would hold is saved as it is. On a CUDA device packing in 8 or 4 bits waits for the device, to know whether
// there are blocks without codes, and is an error while a graph is captured. There floating-point results are not
// searched for two values; codes hold those exactly too.
//
// Rounding draws from random numbers of its own and never touches the program's generators. The numbers follow from the
// seed, from how many regions this policy and its copies have entered before, and from the order of results in the
// region. So the same program has the same gradients in every run, on any number of LibTorch's threads. Regions that
// several threads open at once are counted in the order in which they happen to open.
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
