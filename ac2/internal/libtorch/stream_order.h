// The order of work on devices and streams in a replay, through c10's interfaces alone.
//
// An op is replayed on the stream that is current in backward, which the engine has set to that of the autograd node it
// runs. If the program ordered its streams in forward, that stream has waited for everything that the node's inputs
// were computed from, so that values held since forward are there. Two things remain to be ordered: bytes that a replay
// makes on one stream and that are used on another, and memory that belongs to a stream whose allocator does not know
// who else reads it.
//
// Rejected: replaying each op on the stream that it ran on in forward (in a captured backward that stream may be
// outside the graph, and the engine waits at the end for its own streams alone); an event for every replayed value.
//
// On the CPU an op is done when it returns, and on the meta device there is nothing to do. There, and where all work is
// on one stream, these functions make no event. Threads: any.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <limits>

namespace ac2::internal {

// Whether devices of this type have streams that c10 can ask for.
bool has_streams(c10::DeviceType type);

// Whether an op on the device may still be running when it has returned.
inline bool is_asynchronous(c10::Device device) {
  return !device.is_cpu() && !device.is_meta() && has_streams(device.type());
}

// Stands for a stream where there is nothing to order.
constexpr c10::StreamId kNoStream = std::numeric_limits<c10::StreamId>::min();

// The current stream of the storage's device, or kNoStream.
c10::StreamId current_stream(const c10::Storage& storage);

// Orders what is queued on the current stream of `device` from now on after what is queued on `used_on` now.
void order_after(c10::Device device, c10::StreamId used_on);

// Does the same for the device of `storage`, and keeps the memory of `storage` from being reused before what is queued
// is done. Returns the current stream.
c10::StreamId order_use(const c10::Storage& storage, c10::StreamId used_on);

// Keeps the memory of `storage` from being reused before what is queued on the current stream is done. Its bytes are
// there already, so that nothing needs to be ordered.
void keep_until_read(const c10::Storage& storage);

// If `device` is not the thread's current device, orders what is queued on its current stream from now on after what is
// queued on the current device's current stream now.
void follow_current_device(c10::Device device);

// Returns `device` with an index: that of the current device of its type if it has none.
c10::Device with_index(c10::Device device);

}  // namespace ac2::internal
