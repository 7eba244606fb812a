#include "ac2/internal/tape/offloader.h"

#include <c10/util/Exception.h>

#include <utility>

#include "ac2/internal/offload/offload_device.h"
#include "ac2/internal/tape/graph.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

namespace {

// Of the process: from then on a CPU value decided so is a saved one like any other.
std::atomic<bool> told_about_cpu{false};

// The last tape that a region of this thread has offloaded from.
thread_local std::weak_ptr<Tape> last_tape;

}  // namespace

c10::intrusive_ptr<OffloadedValue> offloaded_of(const Value& value) {
  return c10::static_intrusive_pointer_cast<OffloadedValue>(value.other->packed.toCapsule());
}

Offloader::Offloader(std::weak_ptr<Tape> tape)
    : read_ahead_(std::exchange(last_tape, std::move(tape))),
      form_(std::make_shared<const SaveWithHooks>(
          SaveWithHooks{[this](const at::Tensor& tensor) { return pack(tensor); },
                        [](const c10::IValue& packed) {
                          return c10::static_intrusive_pointer_cast<OffloadedValue>(packed.toCapsule())->bring_back();
                        }})) {}

bool Offloader::concerns(c10::Device device, size_t nbytes, const OffloadOptions& options) {
  return may_leave(device, nbytes, options) || (device.is_cpu() && !told_about_cpu.load(std::memory_order_relaxed));
}

bool Offloader::may_leave(c10::Device device, size_t nbytes, const OffloadOptions& options) {
  return !device.is_cpu() && !device.is_meta() && nbytes > 0 && static_cast<int64_t>(nbytes) >= options.min_bytes;
}

c10::IValue Offloader::pack(const at::Tensor& tensor) {
  if (tensor.is_cpu()) {
    told_about_cpu.store(true, std::memory_order_relaxed);
    TORCH_WARN_ONCE(
        "A policy of ac2 offloads tensors that are on the CPU already. They are saved where they are. This is said "
        "once.");
    return {};
  }
  OffloadDevice* device = OffloadDevice::of(tensor.device());
  if (device == nullptr) {
    TORCH_WARN_ONCE("A policy of ac2 offloads tensors from ", tensor.device(),
                    ", a device without streams, events or pinned memory. They are saved where they are. This is said "
                    "once.");
    return {};
  }
  device->poll();
  c10::intrusive_ptr<OffloadedValue> offloaded = device->take_out(tensor, options_);
  if (!offloaded) {
    const auto nbytes = static_cast<int64_t>(tensor.storage().nbytes());
    not_offloaded_bytes_.fetch_add(nbytes, std::memory_order_relaxed);
    TORCH_WARN_ONCE("ac2 has no pinned memory left to offload ", nbytes, " bytes of ", tensor.device(),
                    " to: ", OffloadDevice::memory().bytes, " bytes are taken, OffloadOptions::max_pinned_bytes is ",
                    options_.max_pinned_bytes,
                    ". What does not fit stays on the device; TraceStats::not_offloaded_bytes counts it. This is said "
                    "once.");
    return {};
  }
  device_.store(device, std::memory_order_relaxed);
  return c10::IValue::make_capsule(std::move(offloaded));
}

void Offloader::run_ahead(Tape& tape) {
  int64_t limit = 0;
  {
    const Tape::Lock lock(tape);
    limit = options_.read_ahead_bytes;
  }
  if (limit > 0) {
    read_ahead_.run(tape, limit);
  }
}

void Offloader::poll() {
  if (OffloadDevice* device = device_.load(std::memory_order_relaxed)) {
    device->poll();
  }
}

}  // namespace ac2::internal
