// Saves the results of the listed ops in a narrower floating-point format, recomputes everything else.
//
//   const ac2::Policy policy = ac2::policies::narrow_ops({"aten::gelu"}, at::kBFloat16);
//   ...
//   ac2::PolicyScope scope(policy);
//
// `format` is kBFloat16 or kHalf (2 bytes a number), kFloat8_e4m3fn or kFloat8_e5m2 (1 byte). Numbers are rounded to
// the nearest: gradients change, docs/quantisation.md has the bound, and the same program has the same gradients. What
// forward computes does not change.
// A result is scaled by a power of two so that its greatest number is among the greatest that float8 has; for 2 bytes
// only where it would overflow. Results that are no wider than the format, that are not of a floating-point type, or
// that have a NaN or an infinity are kept as exact copies.
//
// Ops: SaveWithHooks (a MUST) for the listed ones, PREFER_RECOMPUTE for the others. Names as in policies/listed_ops.h.
// Throws c10::Error for another format, and for a name that no operator has. Works on every device that converts to the
// format; the greatest number is read back from it, which waits for the device.
// Threads: any.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>
#include <vector>

#include "ac2/policy.h"

namespace ac2::policies {

Policy narrow_ops(const std::vector<std::string>& ops, at::ScalarType format);

}  // namespace ac2::policies
