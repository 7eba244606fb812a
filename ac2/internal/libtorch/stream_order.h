// Devices and streams in replay, through c10's interfaces alone. On the CPU, where an op is done when it returns, and
// on the meta device there is nothing to order, and none of this asks anybody.
//
// An op is replayed on the stream that is current in backward, which the engine has set to that of the node it runs.
// Where the program has ordered its streams in forward, that one has waited for all that the node's inputs were
// computed from: what is held from forward is there. Two things remain: bytes that a replay has made on one stream and
// that are used on another, and memory that belongs to a stream whose allocator does not know who reads.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <limits>

namespace ac2::internal {

// Whether c10 knows how to ask it.
bool has_streams(c10::DeviceType type);

// Whether its ops may still be running when they return.
inline bool is_asynchronous(c10::Device device) {
  return !device.is_cpu() && !device.is_meta() && has_streams(device.type());
}

// Where there is nothing to order.
constexpr c10::StreamId kNoStream = std::numeric_limits<c10::StreamId>::min();

// The current one of the storage's device, or kNoStream.
c10::StreamId current_stream(const c10::Storage& storage);

// What the current stream of `device` is given from now on comes after what `used_on` was given until now.
void order_after(c10::Device device, c10::StreamId used_on);

// The same for the device of `storage`, whose memory is not given to anyone else before that is done. Returns the
// current stream.
c10::StreamId order_use(const c10::Storage& storage, c10::StreamId used_on);

// The same for bytes that are there: only of the memory.
void keep_until_read(const c10::Storage& storage);

// `device` is not the thread's current one: what its current stream is given from now on comes after what that of the
// current device was given until now.
void follow_current_device(c10::Device device);

// With an index: the current one of its type, if it has none.
c10::Device with_index(c10::Device device);

}  // namespace ac2::internal
