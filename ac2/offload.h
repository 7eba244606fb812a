// Offloading: how the results that policies decide MUST_CPU_OFFLOAD or PREFER_CPU_OFFLOAD leave the device, and come
// back.
//
//   ac2::PolicyScope scope(ac2::policies::offload_ops({"aten::mm"}), {.offload = ac2::OffloadOptions{.inputs = true}});
//
// On an accelerator a result is copied to pinned memory of the host, on a stream beside the program's, as soon as it is
// known that backward needs it. Its device memory is free again when the copy is done and nothing else uses it. In
// backward it is copied back before it is needed, again on a stream of its own, because the tape knows what comes next.
// Events order all of this; the host never waits. A value that is still on the device when backward wants it is used as
// it is.
//
// The pinned memory comes from a pool, one for each device, which all regions of the process share. The memory goes
// back to the pool when no graph needs the value, and to the host only through release_offload_memory().
//
// Under a memory budget, forms::host_memory() among ScopeOptions::forms lets the budget choose what leaves the device,
// whatever the policies prefer.
//
// Some values stay on the device, as if the policy had said SAVE:
//   - tensors on the CPU and on the meta device, and on devices without streams, events or pinned memory (one warning
//     says so);
//   - results of fewer than `min_bytes`;
//   - results for which no pinned memory is left (one warning says so, and TraceStats::not_offloaded_bytes counts
//     them).
//
// Guaranteed: gradients are bitwise identical to those of plain autograd. Offloaded bytes do not count as held, neither
// in saved_bytes nor for a memory budget; a value that was copied back ahead of its use counts once it is used. Not
// guaranteed: that offloading a value frees memory while the program itself holds that value. Ops under graph capture
// cannot be offloaded, because events cannot be queried there.
//
// Threads: any.
#pragma once

#include "ac2/offload_options.h"  // IWYU pragma: export

namespace ac2 {

// The pinned memory of the whole process.
OffloadMemory offload_memory();

// Gives pinned memory that is not in use back to LibTorch's allocator for such memory. Blocks that a copy may still be
// reading stay in the pool.
void release_offload_memory();

}  // namespace ac2
