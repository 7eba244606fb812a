// Offloading: how the results that policies decide MUST_CPU_OFFLOAD or PREFER_CPU_OFFLOAD leave the device, and come
// back.
//
//   ac2::PolicyScope scope(ac2::policies::offload_ops({"aten::mm"}), {.offload = ac2::OffloadOptions{.inputs = true}});
//
// On an accelerator a result is copied to pinned memory of the host, on a stream beside the program's, as soon as
// backward is found to need it. Its device memory is free again when the copy is done and nothing else uses it. In
// backward it is copied back, again on a stream of its own, before it is needed: the tape says what comes next. Events
// order all of it; the host never waits. What is still on the device when backward wants it is used as it is.
//
// Pinned memory comes from a pool, one for each device, that all regions of the process share, and goes back to it when
// no graph needs the value; it is not given back to the host before release_offload_memory().
//
// Where values stay on the device, as if the policy had said SAVE: tensors on the CPU and the meta device, and devices
// without streams, events or pinned memory (a warning says so, once); results of fewer than `min_bytes`; when there is
// no pinned memory left (a warning says so, once; TraceStats::not_offloaded_bytes counts them).
//
// Guaranteed: gradients of plain autograd, to the last bit. Offloaded bytes do not count as held, in saved_bytes or for
// a memory budget; what was read ahead counts when it is used. Not guaranteed: that a value which the program
// itself holds on to gains anything. Not for ops under graph capture, where events cannot be asked.
//
// Threads: any.
#pragma once

#include "ac2/offload_options.h"  // IWYU pragma: export

namespace ac2 {

// Of the whole process.
OffloadMemory offload_memory();

// Gives pinned memory that is not in use back to LibTorch's allocator for it. Blocks that a copy may still be reading
// stay.
void release_offload_memory();

}  // namespace ac2
