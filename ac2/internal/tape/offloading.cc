#include "ac2/internal/tape/offloading.h"

#include <c10/macros/Macros.h>

#include <utility>

#include "ac2/internal/libtorch/per_thread.h"
#include "ac2/internal/libtorch/tensor_meta.h"

namespace ac2::internal {

namespace {

// The last tape that a region of this thread has offloaded from.
struct LastTape {
  std::weak_ptr<Tape> tape;
};

// A parameter, or a view of one: the program keeps it whatever a region does.
bool is_programs_own(const at::Tensor& tensor) {
  const at::TensorBase& base = tensor.is_view() ? tensor._base() : static_cast<const at::TensorBase&>(tensor);
  return base.requires_grad() && base.is_leaf();
}

}  // namespace

void Offloading::set_options(const OffloadOptions& options) {
  options_ = options;
  if (form_) {
    form_->set_options(options);
  }
}

bool Offloading::may_leave(const at::Tensor& tensor) const {
  return has_plain_storage(*tensor.unsafeGetTensorImpl()) &&
         OffloadForm::may_leave(tensor.device(), tensor.storage().nbytes(), options_);
}

void Offloading::offload(Value* value, const at::Tensor& tensor) {
  if (value->is_opaque() || value->is_managed() || !OffloadForm::concerns(tensor.device(), value->nbytes(), options_)) {
    decisions_.set_form(value, nullptr, tensor);
    return;
  }
  decisions_.set_offload_form(value, form(), tensor);
}

const std::shared_ptr<OffloadForm>& Offloading::form() {
  if (!form_) {
    form_ = std::make_shared<OffloadForm>();
    form_->set_options(options_);
    previous_tape_ = std::exchange(PerThread<LastTape>::here().tape, tape_);
    // Pairs with the acquire of in_use(). A thread that follows the pointer sees the form with its options.
    shown_.store(form_.get(), std::memory_order_release);
  }
  return form_;
}

bool Offloading::may_copy_for_room(const Value& value) const {
  if (C10_LIKELY(!copies_for_room_) || value.has_form()) {
    return false;
  }
  const auto storage = value.lock_original();
  return storage && value.bytes() >= options_.min_bytes &&
         OffloadForm::concerns(storage->device(), value.nbytes(), options_);
}

void Offloading::offload_wanted_input(Value* value, const at::Tensor& tensor) {
  if (may_leave(tensor) && !is_programs_own(tensor)) {
    offload(value, tensor);
  }
}

}  // namespace ac2::internal
