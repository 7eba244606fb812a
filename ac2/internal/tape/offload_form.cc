#include "ac2/internal/tape/offload_form.h"

#include <c10/util/Exception.h>

#include <utility>

#include "ac2/internal/libtorch/warn_in_op.h"
#include "ac2/internal/offload/offload_device.h"

namespace ac2::internal {

namespace {

// Whether the process was told that values on the CPU are not offloaded. Such a value is saved like any other.
std::atomic<bool> told_about_cpu{false};

constexpr const char* kInstead =
    "They are saved where they are, or dropped where a memory budget has no room for them. This is said once.";

}  // namespace

c10::intrusive_ptr<OffloadedValue> offloaded_of(const Value& value) {
  return c10::static_intrusive_pointer_cast<OffloadedValue>(value.packed_form()->packed.toCapsule());
}

bool OffloadForm::concerns(c10::Device device, size_t nbytes, const OffloadOptions& options) {
  return may_leave(device, nbytes, options) || (device.is_cpu() && !told_about_cpu.load(std::memory_order_relaxed));
}

bool OffloadForm::may_leave(c10::Device device, size_t nbytes, const OffloadOptions& options) {
  return !device.is_cpu() && !device.is_meta() && nbytes > 0 && static_cast<int64_t>(nbytes) >= options.min_bytes;
}

c10::IValue OffloadForm::pack(const at::Tensor& tensor) const {
  c10::intrusive_ptr<OffloadedValue> offloaded = take_out(tensor, options_, nullptr);
  return offloaded ? c10::IValue::make_capsule(std::move(offloaded)) : c10::IValue();
}

at::Tensor OffloadForm::unpack(const c10::IValue& packed) const {
  return c10::static_intrusive_pointer_cast<OffloadedValue>(packed.toCapsule())->bring_back();
}

c10::intrusive_ptr<OffloadedValue> OffloadForm::take_out(const at::Tensor& tensor, const OffloadOptions& options,
                                                         const ProgramClock* clock) const {
  if (tensor.is_cpu()) {
    told_about_cpu.store(true, std::memory_order_relaxed);
    static constinit SaidOnce said;
    if (said.is_to_say()) {
      warn_in_op(c10::str("A region of ac2 offloads tensors that are on the CPU already. ", kInstead));
    }
    return {};
  }
  OffloadDevice* device = OffloadDevice::of(tensor.device());
  if (device == nullptr) {
    static constinit SaidOnce said;
    if (said.is_to_say()) {
      warn_in_op(c10::str("A region of ac2 offloads tensors from ", tensor.device(),
                          ", a device without streams, events or pinned memory. ", kInstead));
    }
    return {};
  }
  device->poll();
  c10::intrusive_ptr<OffloadedValue> offloaded = device->take_out(tensor, options, clock);
  if (!offloaded) {
    const auto nbytes = static_cast<int64_t>(tensor.storage().nbytes());
    not_offloaded_bytes_.fetch_add(nbytes, std::memory_order_relaxed);
    static constinit SaidOnce said;
    if (said.is_to_say()) {
      warn_in_op(c10::str("ac2 has no pinned memory left to offload ", nbytes, " bytes of ", tensor.device(),
                          " to: ", OffloadDevice::memory().bytes,
                          " bytes are taken, OffloadOptions::max_pinned_bytes is ", options.max_pinned_bytes,
                          ". What does not fit stays on the device, or is dropped for a memory budget; "
                          "TraceStats::not_offloaded_bytes counts it. This is said once."));
    }
    return {};
  }
  device_.store(device, std::memory_order_release);
  return offloaded;
}

void OffloadForm::poll() {
  if (OffloadDevice* device = device_.load(std::memory_order_acquire)) {
    device->poll();
  }
}

}  // namespace ac2::internal
