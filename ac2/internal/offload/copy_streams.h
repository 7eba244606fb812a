// Two streams on which a device copies while the program's own work goes on: the first is for copies to the host, the
// second for copies back.
//
//   CopyStreams streams(device);
//   CopyStreams::EventPtr out = streams.copy_out(storage, pinned, nbytes, nullptr);
//   streams.wait(*out, storage, stream);   // then the storage may be freed
//
// CopyStreams works for every device through c10's streams and events, and never blocks the host. Threads: not
// thread-safe, because c10::Event is not.
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

  // This thread's current stream on the device.
  c10::Stream current() const { return impl_.getStream(device_); }

  // Queues a copy of `nbytes` after everything that is queued on the current stream, and after `after` if that is not
  // null. Returns an event that happens when the copy is done. Both storages must live until then, or be freed in the
  // order of a stream that has waited for the event.
  // With `begun`, which is set to one that happens when the copy begins, both can be timed.
  EventPtr copy_out(const c10::Storage& device, const c10::Storage& host, size_t nbytes, const EventPtr& after,
                    EventPtr* begun = nullptr);
  EventPtr copy_in(const c10::Storage& host, const c10::Storage& device, size_t nbytes, const EventPtr& after);

  // An event that can be timed, on the current stream.
  EventPtr here() const;

  // Makes `stream` wait for `event`, and keeps the memory of `storage` from being reused before everything that is
  // queued on `stream` now is done, on whatever stream it was allocated.
  void wait(const c10::Event& event, const c10::Storage& storage, c10::Stream stream) const;

 private:
  EventPtr copy(c10::Stream stream, const c10::Storage& from, const c10::Storage& to, size_t nbytes,
                const EventPtr& after, EventPtr* begun);

  c10::Device device_;
  c10::impl::VirtualGuardImpl impl_;
  c10::Stream out_;
  c10::Stream in_;
};

}  // namespace ac2::internal
