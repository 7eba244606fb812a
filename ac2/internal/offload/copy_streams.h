// The streams on which one device copies beside the program's own work: one out of it, one into it. Device-generic,
// through c10's streams and events.
//
// Nothing here blocks the host. Not thread-safe: c10::Event is not.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstddef>
#include <memory>

namespace ac2::internal {

class CopyStreams {
 public:
  using EventPtr = std::shared_ptr<c10::Event>;

  // Throws c10::Error if the device has no streams or no events.
  explicit CopyStreams(c10::Device device);

  // Of this thread, on the device.
  c10::Stream current() const { return impl_.getStream(device_); }

  // Queues a copy of `nbytes` after all that is queued on the current stream, and after `after` if that is not null.
  // What is returned happens when it is done. Both storages must live until then, or be freed in the order of a stream
  // that has waited for it.
  EventPtr copy_out(const c10::Storage& device, const c10::Storage& host, size_t nbytes, const EventPtr& after);
  EventPtr copy_in(const c10::Storage& host, const c10::Storage& device, size_t nbytes, const EventPtr& after);

  // `stream` goes on when `event` has happened, and the memory of `storage` is not used again before what is queued
  // there now is done, whatever stream it was allocated on.
  void wait(const c10::Event& event, const c10::Storage& storage, c10::Stream stream) const;

 private:
  EventPtr copy(c10::Stream stream, const c10::Storage& from, const c10::Storage& to, size_t nbytes,
                const EventPtr& after);

  c10::Device device_;
  c10::impl::VirtualGuardImpl impl_;
  c10::Stream out_;
  c10::Stream in_;
};

}  // namespace ac2::internal
