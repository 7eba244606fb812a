// Allocates and copies raw bytes on a device.
//
//   c10::Storage copy = copy_storage(storage, nbytes);
//
// The ops that this takes are neither recorded nor seen by autograd. Threads: any.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>

#include <cstddef>

namespace ac2::internal {

c10::Storage allocate_storage(size_t nbytes, c10::Device device);
// Copies the first `nbytes`, after what is queued on the device's current stream.
c10::Storage copy_storage(const c10::Storage& source, size_t nbytes);

// A tensor of bytes over the first `nbytes`.
at::Tensor as_bytes(const c10::Storage& storage, size_t nbytes);

// Queues the copy on the current stream of the device that one of the two is on. The host does not wait if the other is
// on that device too, or in pinned memory.
void copy_bytes(const c10::Storage& from, const c10::Storage& to, size_t nbytes);

}  // namespace ac2::internal
