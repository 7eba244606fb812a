// Which values of a tape leave their device.
//
// Threads: guarded by the tape's lock, but for in_use(). set_options() is for the recording thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "ac2/internal/graph/node.h"
#include "ac2/internal/tape/decisions.h"
#include "ac2/internal/tape/offload_form.h"
#include "ac2/internal/tape/read_ahead_state.h"
#include "ac2/offload_options.h"

namespace ac2::internal {

class Tape;

class Offloading {
 public:
  explicit Offloading(Decisions& decisions) : decisions_(decisions) {}

  // `tape` is the one it belongs to.
  void set_tape(std::weak_ptr<Tape> tape) { tape_ = std::move(tape); }
  void set_options(const OffloadOptions& options);
  const OffloadOptions& options() const { return options_; }

  // Whether an offloaded result leaves the device that it is on.
  bool may_leave(const at::Tensor& tensor) const;
  // A saved value is to leave the device, if it may. `tensor` as for Decisions::set_form().
  void offload(Value* value, const at::Tensor& tensor);
  // The same for what the region has just taken from outside, if the options say so.
  void offload_input(Value* value, const at::Tensor& tensor) {
    if (options_.inputs) {
      offload_wanted_input(value, tensor);
    }
  }

  // Whether a budget may copy results of ops from now on to the host instead of dropping them.
  void set_copies_for_room(bool copies) {
    copies_for_room_ = copies;
    has_copied_for_room_ |= copies;
  }
  // Whether it may have done so: the forms of a scope end with it, and backward comes after.
  bool has_copied_for_room() const { return has_copied_for_room_; }
  // Whether it may try to copy the bytes of this one.
  bool may_copy_for_room(const Value& value) const;
  // The form for those. The first call makes it.
  const std::shared_ptr<OffloadForm>& form();

  // Null as long as nothing is to be offloaded. Needs no lock.
  OffloadForm* in_use() const { return shown_.load(std::memory_order_acquire); }
  int64_t not_offloaded_bytes() const { return form_ ? form_->not_offloaded_bytes() : 0; }
  // The tape from which a region of this thread had last offloaded when this one began to.
  const std::weak_ptr<Tape>& previous_tape() const { return previous_tape_; }
  // Lives as long as the tape. The first call makes it.
  ReadAheadState& read_ahead() {
    if (read_ahead_ == nullptr) {
      read_ahead_ = std::make_unique<ReadAheadState>();
    }
    return *read_ahead_;
  }

 private:
  void offload_wanted_input(Value* value, const at::Tensor& tensor);

  Decisions& decisions_;
  std::weak_ptr<Tape> tape_;
  std::weak_ptr<Tape> previous_tape_;
  OffloadOptions options_;
  bool copies_for_room_ = false;
  bool has_copied_for_room_ = false;
  std::shared_ptr<OffloadForm> form_;
  std::unique_ptr<ReadAheadState> read_ahead_;
  std::atomic<OffloadForm*> shown_{nullptr};  // form_, for those without the lock
};

}  // namespace ac2::internal
