// The form in which the values of one tape leave their device.
//
// Values have the form for the reasons FormReason::kOffload and kRoomOnHost (graph/value_state.h). For the former the
// pack runs without the lock when a value is first held, and the unpack when a backward needs the value. Where pack
// returns None the value stays where it is.
//
// Threads: pack and poll() run without the tape's lock, the former on the region's thread. set_options() is for that
// thread too.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "ac2/internal/forms/form_access.h"
#include "ac2/internal/graph/value.h"
#include "ac2/internal/offload/offloaded_value.h"
#include "ac2/internal/operators/program_clock.h"
#include "ac2/offload_options.h"
#include "ac2/policy.h"

namespace ac2::internal {

class OffloadDevice;

// The OffloadedValue of a value that is packed so.
c10::intrusive_ptr<OffloadedValue> offloaded_of(const Value& value);

class OffloadForm final : public HarmlessForm {
 public:
  OffloadForm() = default;

  // Whether a storage there may leave its device, or pack has to say that it cannot.
  static bool concerns(c10::Device device, size_t nbytes, const OffloadOptions& options);
  // Whether it may leave, and the device is one from which that makes sense.
  static bool may_leave(c10::Device device, size_t nbytes, const OffloadOptions& options);

  std::string name() const override { return "host memory"; }
  bool is_exact() const override { return true; }
  c10::IValue pack(const at::Tensor& tensor) const override;
  at::Tensor unpack(const c10::IValue& packed) const override;

  // Queues the copy to the host. Null, with a warning, if the tensor cannot leave. With a clock the copy is timed. For
  // any thread, without the tape's lock.
  c10::intrusive_ptr<OffloadedValue> take_out(const at::Tensor& tensor, const OffloadOptions& options,
                                              const ProgramClock* clock) const;

  void set_options(const OffloadOptions& options) { options_ = options; }
  // Frees the device memory of what is known to have left by now.
  void poll();

  int64_t not_offloaded_bytes() const { return not_offloaded_bytes_.load(std::memory_order_relaxed); }

 private:
  OffloadOptions options_;
  // That something last left. poll() reads it on threads of the engine, which have not seen how the device was made:
  // the acquire there pairs with the release of take_out().
  mutable std::atomic<OffloadDevice*> device_{nullptr};
  mutable std::atomic<int64_t> not_offloaded_bytes_{0};
};

}  // namespace ac2::internal
