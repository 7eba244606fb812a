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

#include <cstdint>
#include <limits>

namespace ac2 {

// All bytes are those of whole storages. What other regions have on the way counts too: a device has one bound, which
// is that of the region just then running.
struct OffloadOptions {
  // Results of fewer bytes stay where they are.
  int64_t min_bytes = 1 << 20;
  // What the region takes from outside and must keep is offloaded too: its inputs, and all else of at least `min_bytes`
  // but leaves that require a gradient, which are the program's own. Only what is met from here on.
  bool inputs = false;
  // At most so many bytes of the device hold values that were copied back and not used yet. 0: each is copied when it
  // is needed, and backward waits for it.
  int64_t read_ahead_bytes = 256 << 20;
  // At most so many bytes stay on the device because their copy out is not done. Beyond that the program's stream waits
  // for the oldest, so that memory is free in the order of the stream; the host does not wait. 0: for each at once.
  int64_t in_flight_bytes = 256 << 20;
  // Pinned memory for values of one device that all regions of the process may have together when this one takes some.
  int64_t max_pinned_bytes = std::numeric_limits<int64_t>::max();
};

// Pinned memory of the whole process.
struct OffloadMemory {
  int64_t bytes = 0;         // in the pool, in use or not
  int64_t bytes_in_use = 0;  // with values in it
};

OffloadMemory offload_memory();

// Gives pinned memory that is not in use back to LibTorch's allocator for it. Blocks that a copy may still be reading
// stay.
void release_offload_memory();

}  // namespace ac2
