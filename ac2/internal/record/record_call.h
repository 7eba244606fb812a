// Forward's side: running an op and writing it into the tape.
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "ac2/internal/operators/op_facts.h"
#include "ac2/internal/region/region.h"

namespace ac2::internal {

// Runs the op on top of `stack` and records it. `keys` are those below kRecordKey, which the caller has excluded;
// `tls_keys` is the dispatch state before that.
void record_call(Region& region, const OpFacts& facts, c10::DispatchKeySet keys,
                 const c10::impl::PODLocalDispatchKeySet& tls_keys, torch::jit::Stack* stack);

// Runs the op without recording it; values of the tape that it overwrites are copied first if something needs them.
void run_unrecorded(Region& region, const OpFacts& facts, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace ac2::internal
