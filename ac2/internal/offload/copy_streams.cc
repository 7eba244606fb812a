#include "ac2/internal/offload/copy_streams.h"

#include <c10/core/StreamGuard.h>

#include "ac2/internal/libtorch/storage_copy.h"

namespace ac2::internal {

CopyStreams::CopyStreams(c10::Device device)
    : device_(device),
      impl_(device.type()),
      out_(impl_.getStreamFromGlobalPool(device)),
      in_(impl_.getStreamFromGlobalPool(device)) {
  c10::Event probe(device.type());
  probe.record(current());
  probe.block(out_);
}

CopyStreams::EventPtr CopyStreams::copy(c10::Stream stream, const c10::Storage& from, const c10::Storage& to,
                                        size_t nbytes, const EventPtr& after, EventPtr* begun) {
  c10::Event now(device_.type());
  now.record(current());
  now.block(stream);
  if (after) {
    after->block(stream);
  }
  const c10::EventFlag flag = begun != nullptr ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT;
  auto done = std::make_shared<c10::Event>(device_.type(), flag);
  const c10::StreamGuard guard(stream);
  if (begun != nullptr) {
    *begun = std::make_shared<c10::Event>(device_.type(), flag);
    (*begun)->record(stream);
  }
  copy_bytes(from, to, nbytes);
  done->record(stream);
  return done;
}

CopyStreams::EventPtr CopyStreams::copy_out(const c10::Storage& device, const c10::Storage& host, size_t nbytes,
                                            const EventPtr& after, EventPtr* begun) {
  return copy(out_, device, host, nbytes, after, begun);
}

CopyStreams::EventPtr CopyStreams::copy_in(const c10::Storage& host, const c10::Storage& device, size_t nbytes,
                                           const EventPtr& after) {
  return copy(in_, host, device, nbytes, after, nullptr);
}

CopyStreams::EventPtr CopyStreams::here() const {
  auto event = std::make_shared<c10::Event>(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  event->record(current());
  return event;
}

void CopyStreams::wait(const c10::Event& event, const c10::Storage& storage, c10::Stream stream) const {
  event.block(stream);
  impl_.recordDataPtrOnStream(storage.data_ptr(), stream);
}

}  // namespace ac2::internal
