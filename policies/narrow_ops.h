// Saves the results of the listed ops in a narrower floating-point format, recomputes everything else.
//
//   const ac2::Policy policy = ac2::policies::narrow_ops({"aten::gelu"}, at::kBFloat16);
//   ...
//   ac2::PolicyScope scope(policy);
//
// `format` is kBFloat16 or kHalf (2 bytes a number), kFloat8_e4m3fn or kFloat8_e5m2 (1 byte). Numbers are rounded to
// the nearest. So gradients change, and docs/quantisation.md has the bound; the same program has the same gradients in
// every run. Forward's results do not change.
//
// A result is scaled by a power of two, so that its greatest number is among the greatest that the format has. For
// float8 this is always done, for 2 bytes only where a number would overflow. Results that are no wider than the
// format, that are not of a floating-point type, or that have a NaN or an infinity are saved as exact copies.
//
// SaveWithHooks (a MUST) for the listed ops, PREFER_RECOMPUTE for all others. Names are as in policies/listed_ops.h.
// Throws c10::Error for another format, and for a name that no operator has. The policy works on every device that
// converts to the format. The policy reads the greatest number back from the device, and waits for it. Threads: any.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>
#include <vector>

#include "ac2/policy.h"

namespace ac2::policies {

Policy narrow_ops(const std::vector<std::string>& ops, at::ScalarType format);

}  // namespace ac2::policies
