// What a tape has for offloading: the form in which values leave the device, what to read ahead, and counts.
//
// To the tape it is a SaveWithHooks (marked by OtherForm::is_offload): packed without the lock when a value is first
// held, unpacked when a backward needs it. Where pack returns None the value stays where it is.
//
// Threads: pack and poll run on the region's thread, without the tape's lock; the rest see each member.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ac2/internal/offload/offloaded_value.h"
#include "ac2/internal/tape/read_ahead.h"
#include "ac2/offload_options.h"
#include "ac2/policy.h"

namespace ac2::internal {

class OffloadDevice;
class Tape;
struct Value;

// Of a value that is packed so.
c10::intrusive_ptr<OffloadedValue> offloaded_of(const Value& value);

class Offloader {
 public:
  // `tape` is the one it belongs to.
  explicit Offloader(std::weak_ptr<Tape> tape);
  Offloader(const Offloader&) = delete;
  Offloader& operator=(const Offloader&) = delete;

  // Whether a storage there may leave, or pack has to say that it cannot.
  static bool concerns(c10::Device device, size_t nbytes, const OffloadOptions& options);
  // The same, and it is a device from which it makes sense.
  static bool may_leave(c10::Device device, size_t nbytes, const OffloadOptions& options);

  const std::shared_ptr<const SaveWithHooks>& form() const { return form_; }

  // By the region's thread. With the lock.
  void set_options(const OffloadOptions& options) { options_ = options; }
  // With the lock.
  ReadAhead& read_ahead() { return read_ahead_; }
  // Without it: copies back what comes after the hook that a backward has just taken out.
  void run_ahead(Tape& tape);
  // Without the lock.
  void poll();

  int64_t not_offloaded_bytes() const { return not_offloaded_bytes_.load(std::memory_order_relaxed); }

 private:
  c10::IValue pack(const at::Tensor& tensor);

  OffloadOptions options_;
  ReadAhead read_ahead_;
  const std::shared_ptr<const SaveWithHooks> form_;
  std::atomic<OffloadDevice*> device_{nullptr};  // that something last left
  std::atomic<int64_t> not_offloaded_bytes_{0};
};

}  // namespace ac2::internal
