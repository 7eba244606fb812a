// Raw bytes on a device: fresh ones, and copies of a storage's.
//
// The ops these need are neither recorded nor seen by autograd.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Storage.h>

#include <cstddef>

namespace ac2::internal {

c10::Storage allocate_storage(size_t nbytes, c10::Device device);
// Of the first `nbytes`; ordered after the work on the device's current stream.
c10::Storage copy_storage(const c10::Storage& source, size_t nbytes);

// Queued on the current stream of the device that either is on; the host does not wait if the other is there too, or in
// pinned memory.
void copy_bytes(const c10::Storage& from, const c10::Storage& to, size_t nbytes);

}  // namespace ac2::internal
