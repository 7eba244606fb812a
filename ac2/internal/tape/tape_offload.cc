// The part of Tape that says which values are offloaded.
#include <memory>

#include "ac2/internal/tape/offloader.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

namespace {

// A parameter, or a view of one: the program keeps it whatever a region does.
bool is_programs_own(const at::Tensor& tensor) {
  const at::TensorBase& base = tensor.is_view() ? tensor._base() : static_cast<const at::TensorBase&>(tensor);
  return base.requires_grad() && base.is_leaf();
}

}  // namespace

void Tape::set_offload_options(const OffloadOptions& options) {
  const Lock lock(*this);
  offload_options_ = options;
  if (owned_offloader_) {
    owned_offloader_->set_options(options);
  }
}

bool Tape::may_leave(const at::Tensor& tensor) const {
  return has_plain_storage(*tensor.unsafeGetTensorImpl()) &&
         Offloader::may_leave(tensor.device(), tensor.storage().nbytes(), offload_options_);
}

void Tape::set_offload(Value* value, const at::Tensor& tensor) {
  if (value->is_opaque() || !Offloader::concerns(tensor.device(), value->nbytes, offload_options_)) {
    set_hooks(value, nullptr, tensor);
    return;
  }
  if (!owned_offloader_) {
    owned_offloader_ = std::make_unique<Offloader>(weak_from_this());
    owned_offloader_->set_options(offload_options_);
    offloader_.store(owned_offloader_.get(), std::memory_order_release);
  }
  set_hooks(value, owned_offloader_->form(), tensor);
  value->other->is_offload = true;
}

void Tape::offload_input(Value* value, const at::Tensor& tensor) {
  if (may_leave(tensor) && !is_programs_own(tensor)) {
    set_offload(value, tensor);
  }
}

void Tape::keep_in_place(Value* value) {
  if (value->has_hooks() && value->other->is_offload && !value->other->is_packed) {
    value->other.reset();
  }
}

}  // namespace ac2::internal
