// Saves small results, recomputes large ones: what is small is not worth the time.
//
//   const ac2::Policy policy = ac2::policies::by_size(1 << 20);  // recomputes what takes a MiB or more
//
// Ops: PREFER_RECOMPUTE where the op's result tensors take `min_bytes` or more together, MUST_SAVE where they take
// less. Bytes are number of elements × bytes per element; a tensor that the op wrote into and returns counts as a
// result. So first_of({by_size(n), rule}) saves what is small and leaves the rest to the rule. MegEngine's option
// dtr.evictee_minimum_size draws the same line.
// Throws c10::Error for a negative size. 0 recomputes everything. Asked for every op.
#pragma once

#include <cstdint>

#include "ac2/policy.h"

namespace ac2::policies {

Policy by_size(int64_t min_bytes);

}  // namespace ac2::policies
